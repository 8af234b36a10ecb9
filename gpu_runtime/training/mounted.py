"""A job while it is mounted: its slot on a resident base, and how far its work has come."""

from dataclasses import dataclass, field
from typing import Any

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.models.slots import Slot
from gpu_runtime.training.frames import FrameRows
from gpu_runtime.training.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a job ended: ``reason`` for machines, ``message`` for people."""

    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class MountedJob:
    """One attempt on its base. The compute thread reads ``stopped``; everything else belongs to the event loop."""

    job_id: str
    attempt: int
    tenant_id: str
    slot: Slot | RlSlot
    backbone: Backbone
    checkpoint_every: int
    frames: FrameRows | None = None  # stored features of its frames; None: every feature is computed
    warnings: tuple[str, ...] = ()  # what its tenant should know about the mount
    outstanding: dict[str, Work] = field(default_factory=dict)  # partition id -> work, reserved and not yet settled
    ready_at_us: dict[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    stopped: bool = False  # cancelled, failed or shutting down: its slices are skipped
    stop_after: int | None = None  # stopped at the end of a partition, not before this step
    evaluation: Any = None  # ActionError of the chunks of the evaluation in progress
    last_step_at_us: int | None = None
    saved_step: int = -1
    dropped_stale: int = 0  # partitions that were too old when their turn came
    stale_in_a_row: int = 0  # of them, since the last step

    @property
    def key(self) -> str:
        """The job's name in the training queue: attempts never mix."""
        return f"{self.job_id}/{self.attempt}"
