"""What a service measured about itself over a trailing window."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyInterval:
    """One device step on the monotonic clock, microseconds."""

    begin_us: int
    end_us: int
    group_size: int


class Utilization:
    """Busy share and mean group size; a step that is still running counts up to now."""

    def __init__(self, *, now_us: int, window_us: int) -> None:
        self._born_us = now_us
        self._window_us = window_us
        self._intervals: deque[BusyInterval] = deque()
        self._running_since_us: int | None = None

    @property
    def busy(self) -> bool:
        return self._running_since_us is not None

    def begin(self, now_us: int) -> None:
        """A step starts."""
        self._running_since_us = now_us

    def end(self, now_us: int, group_size: int) -> None:
        """The step is over."""
        assert self._running_since_us is not None, "no step was begun"
        self._intervals.append(BusyInterval(begin_us=self._running_since_us, end_us=now_us, group_size=group_size))
        self._running_since_us = None
        self._forget(now_us)

    def window_us(self, now_us: int) -> int:
        """Length of the window; shorter while the service is younger."""
        return max(1, min(self._window_us, now_us - self._born_us))

    def busy_share(self, now_us: int) -> float:
        """Busy time over the window, 0 to 1."""
        self._forget(now_us)
        start_us = now_us - self.window_us(now_us)
        busy_us = sum(step.end_us - max(step.begin_us, start_us) for step in self._intervals)
        if self._running_since_us is not None:
            busy_us += now_us - max(self._running_since_us, start_us)
        return min(1.0, busy_us / self.window_us(now_us))

    def group_size_mean(self, now_us: int) -> float | None:
        """Training jobs per step; None when no step ended in the window."""
        self._forget(now_us)
        sizes = [step.group_size for step in self._intervals]
        return sum(sizes) / len(sizes) if sizes else None

    def _forget(self, now_us: int) -> None:
        while self._intervals and self._intervals[0].end_us <= now_us - self._window_us:
            self._intervals.popleft()
