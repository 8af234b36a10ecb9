"""Two ways of doing the same work, timed in turns so that a busy machine slows both alike."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from gpu_runtime.training.clock import DeviceClock

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Medians of one side, milliseconds."""

    cpu_ms: float
    wall_ms: float


def interleave(
    first: Work,
    second: Work,
    *,
    repetitions: int,
    device: str = "cpu",
    before_first: Work | None = None,
    before_second: Work | None = None,
) -> tuple[Timing, Timing]:
    """A B A B ...: CPU time of the whole process and wall time of each side, after one warm-up each.

    ``before_first`` and ``before_second`` set a side up before each of its turns, untimed. Wall time runs until
    ``device`` has finished.
    """
    sides = ((first, before_first), (second, before_second))
    clock = DeviceClock(device)
    samples: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for turn in range(repetitions + 1):
        for kept, (work, before) in zip(samples, sides, strict=True):
            if before is not None:
                before()
            spent = _timed(work, clock)
            if turn:
                kept.append(spent)
    return _medians(samples[0]), _medians(samples[1])


def _timed(work: Work, clock: DeviceClock) -> tuple[int, int]:
    """(CPU, wall) nanoseconds."""
    wall, cpu = clock.now_ns(), time.process_time_ns()
    work()
    return time.process_time_ns() - cpu, clock.now_ns() - wall


def _medians(samples: list[tuple[int, int]]) -> Timing:
    cpu, wall = zip(*samples, strict=True)
    return Timing(cpu_ms=median(cpu) / 1e6, wall_ms=median(wall) / 1e6)
