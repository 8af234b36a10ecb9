"""How long the environment service was at work, and how much work that was: for utilization and for bills."""

import contextlib
import time
from collections.abc import Iterator


class BusyMeter:
    """Microseconds during which at least one call ran (``busy_us``), and of all calls added up (``calls_us``)."""

    def __init__(self, parent: "BusyMeter | None" = None) -> None:
        self._parent = parent
        self._running, self._since_ns, self._busy_ns, self._calls_ns = 0, 0, 0, 0

    @property
    def busy_us(self) -> int:
        running_ns = time.monotonic_ns() - self._since_ns if self._running else 0
        return (self._busy_ns + running_ns) // 1000

    @property
    def calls_us(self) -> int:
        return self._calls_ns // 1000

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """One call, from its beginning to its end, however it ends."""
        begun_ns = time.monotonic_ns()
        self._begin(begun_ns)
        try:
            yield
        finally:
            self._end(begun_ns, time.monotonic_ns())

    def _begin(self, now_ns: int) -> None:
        if self._running == 0:
            self._since_ns = now_ns
        self._running += 1
        if self._parent is not None:
            self._parent._begin(now_ns)

    def _end(self, begun_ns: int, now_ns: int) -> None:
        """The parent goes by the same two times, so that what its children measured adds up to what it did."""
        self._running -= 1
        self._calls_ns += now_ns - begun_ns
        if self._running == 0:
            self._busy_ns += now_ns - self._since_ns
        if self._parent is not None:
            self._parent._end(begun_ns, now_ns)
