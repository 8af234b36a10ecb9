"""What is written to the journal: values that can be kept in memory and written again after a failure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_runtime.protocol.messages import EventBody, StopJob, WorkloadState


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event to be. ``work`` names the piece of work a usage event pays for, e.g. ``train/12``: billed once."""

    body: EventBody
    occurred_at_us: int
    job_id: str | None = None
    attempt: int | None = None
    tenant_id: str | None = None
    work: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """One accepted attempt. ``submit`` is the message as received, ``digest`` the SHA-256 of its meaning."""

    job_id: str
    attempt: int
    tenant_id: str
    submit: bytes
    digest: str
    state: WorkloadState
    total_steps: int
    step: int = 0
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChange:
    """New state and/or step of an attempt; None leaves the column as it is. A step never falls.

    ``stop``: how it was asked to stop; a later ask changes nothing.
    """

    job_id: str
    attempt: int
    state: WorkloadState | None = None
    reason: str | None = None
    message: str | None = None
    step: int | None = None
    stop: StopJob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Everything of one transaction: it becomes durable as a whole or not at all."""

    entries: tuple[Entry, ...] = ()
    accepted: WorkloadRow | None = None
    changes: tuple[WorkloadChange, ...] = ()
    queue: dict[str, Any] | None = field(default=None)  # TrainingQueue.dump(), JSON types
    drained: Mapping[str, str] | None = None  # every drained service, and why
