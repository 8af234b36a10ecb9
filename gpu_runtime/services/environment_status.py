"""How busy the environment processes were over a trailing window, from meters that only count up."""

import asyncio
from collections import deque
from typing import NamedTuple

from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.protocol.messages import ServiceStatus
from gpu_runtime.training.clock import monotonic_us

_EVERY_S = 1.0


class _Sample(NamedTuple):
    at_us: int
    busy_us: int  # during which at least one process was at work
    calls_us: int  # of all processes, added up


class EnvironmentWatch:
    """``run`` samples the pool's meter now and then, so that the window ends where it should."""

    def __init__(self, pool: EnvironmentPool, *, window_us: int) -> None:
        self._pool, self._window_us = pool, window_us
        self._samples: deque[_Sample] = deque([self._now()])

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            self._take()

    def status(self, *, stopping: bool) -> ServiceStatus:
        """``queue_depth``: requests that wait for seats. ``group_size_mean``: processes at work side by side."""
        first, last = self._take()
        window_us = max(1, last.at_us - first.at_us)
        busy_us, calls_us = last.busy_us - first.busy_us, last.calls_us - first.calls_us
        found = self._pool.status()
        return ServiceStatus(
            service="environment",
            state="stopped" if stopping else ("busy" if found.processes_used else "idle"),
            busy_share=min(1.0, busy_us / window_us),
            window_s=window_us / 1e6,
            queue_depth=found.waiting,
            group_size_mean=round(max(1.0, calls_us / busy_us), 3) if busy_us and calls_us else None,
            seats_used=sum(found.seats.values()),
            seats_total=self._pool.limits.seats_total,
        )

    def _take(self) -> tuple[_Sample, _Sample]:
        """The sample at the window's beginning, and the one of now."""
        now = self._now()
        self._samples.append(now)
        while len(self._samples) > 2 and self._samples[1].at_us <= now.at_us - self._window_us:
            self._samples.popleft()
        return self._samples[0], now

    def _now(self) -> _Sample:
        busy = self._pool.busy
        return _Sample(monotonic_us(), busy.busy_us, busy.calls_us)
