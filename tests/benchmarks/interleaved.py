"""Two ways of doing the same work, timed in turns so that a busy machine slows both alike."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Medians of one side, milliseconds."""

    cpu_ms: float
    wall_ms: float


def interleave(
    first: Callable[[], object], second: Callable[[], object], *, repetitions: int
) -> tuple[Timing, Timing]:
    """A B A B ...: CPU time of the whole process and wall time of each side, after one warm-up each."""
    first(), second()
    samples: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for _ in range(repetitions):
        for side, work in zip(samples, (first, second), strict=True):
            cpu, wall = time.process_time(), time.perf_counter()
            work()
            side.append((time.process_time() - cpu, time.perf_counter() - wall))
    return _medians(samples[0]), _medians(samples[1])


def _medians(samples: list[tuple[float, float]]) -> Timing:
    cpu, wall = zip(*samples, strict=True)
    return Timing(cpu_ms=1e3 * median(cpu), wall_ms=1e3 * median(wall))
