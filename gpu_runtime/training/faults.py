"""A fault of one tenant stays that tenant's: it is caught, named and timed."""

from collections.abc import Callable
from typing import Any

import torch

from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.member import Member
from gpu_runtime.training.mounted import Failure

OUT_OF_MEMORY = "out_of_memory"


class Guard:
    """Runs what concerns one member only."""

    def __init__(self, clock: DeviceClock) -> None:
        self.clock = clock

    def run(self, member: Member, action: Callable[[Member], Any]) -> int:
        """Run one member's action; its fault becomes its ``failure``. Returns nanoseconds."""
        begin_ns = self.clock.now_ns()
        if member.job.stopped:
            member.skipped = True
            return 0
        try:
            action(member)
        except Exception as error:
            free_memory()
            member.skipped = member.job.stopped  # a cancelled job's payload may vanish under our hands
            member.failure = None if member.skipped else explain(error)
        return self.clock.now_ns() - begin_ns


def explain(error: Exception) -> Failure:
    """A machine-readable reason and a message for one tenant's fault."""
    if isinstance(error, torch.OutOfMemoryError):
        return Failure(reason=OUT_OF_MEMORY, message="the step does not fit into device memory; use a smaller batch")
    reason = getattr(error, "code", None)
    if isinstance(reason, str):
        return Failure(reason=reason, message=str(error))
    return Failure(reason="step_failed", message=f"{type(error).__name__}: {error}")


def free_memory() -> None:
    """Return what a failed try left in the allocator's cache."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
