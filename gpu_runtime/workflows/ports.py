"""What a workflow needs of the services around it, as small protocols: tests give it fakes, the runtime its own."""

from dataclasses import dataclass
from typing import Protocol

from gpu_runtime.protocol.messages import EventBody

REDONE = "redone_after_restart"
"""Why usage is metered and not billed: the platform lost what it had been for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUse:
    """What some environments did since it was last told.

    ``busy_us`` is added up over calls, which run side by side; ``work`` names the work itself, so that what is done
    again after a restart is known as such.
    """

    steps: int
    busy_us: int
    started_at_us: int  # Unix time of the first call
    seats: int
    processes: int = 1  # that work side by side, whose calls are added up
    step: int  # of the job
    work: str
    reason: str | None = None  # why it is not billed


class Teller(Protocol):
    """Makes events of the workflow's attempt durable, in order; returns when they are."""

    async def __call__(self, *bodies: EventBody) -> None: ...


class EnvironmentMeter(Protocol):
    """Writes environment use down: one span of the service ``environment``, one usage event of the attempt."""

    async def __call__(self, use: EnvironmentUse) -> None: ...
