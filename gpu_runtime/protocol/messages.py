"""Requests to the gateway and events from it."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.lora import TextModules
from gpu_runtime.protocol.schema import DatasetSummary


class WorkloadState(StrEnum):
    """State of one attempt inside the runtime."""

    ACCEPTED = "accepted"  # durable in the journal, not started
    STARTING = "starting"  # mounting its slot, opening its data
    RUNNING = "running"  # training
    CANCELLING = "cancelling"  # told to stop: at the next microbatch, or at the next point where its work can be kept
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL_WORKLOAD_STATES = frozenset({WorkloadState.SUCCEEDED, WorkloadState.FAILED, WorkloadState.CANCELLED})


class DatasetBinding(Message):
    """A dataset version as the runtime needs it: where it lies under the shared dataset root, and what it is."""

    version_id: str
    storage_key: str  # relative to the dataset root; never a tenant's path
    summary: DatasetSummary


class PolicyBinding(Message):
    """The adapter a job starts from, as the runtime keeps it."""

    artifact_id: str  # the runtime's name of the artifact, as in ArtifactPublished
    sha256: str  # of its archive
    base_model: str  # that it was trained on


class SubmitJob(Message):
    """Start one attempt. Idempotent on (job_id, attempt); the same key with another body is a conflict.

    A kind that learns from demonstrations is bound to a dataset, any other to a policy.
    """

    job_id: str
    attempt: Annotated[int, Field(ge=1)]
    tenant_id: str
    tenant_weight: Annotated[int, Field(ge=1, le=1000)] = 1
    spec: JobSpec
    dataset: DatasetBinding | None = None
    policy: PolicyBinding | None = None

    @model_validator(mode="after")
    def _is_bound(self) -> "SubmitJob":
        wanted, other = ("dataset", "policy") if self.spec.kind == "sft" else ("policy", "dataset")
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise ValueError(f"a job of kind {self.spec.kind!r} is bound to a {wanted}, and to no {other}")
        return self


class StopJob(Message):
    """How an attempt is to stop; a cancel without a body is ``StopJob()``. The first one that arrives stands.

    ``keep``: at the next safe point instead of at once, and what was made is published with the end: an adapter of
    the policy version that was reached, the episodes that were recorded. ``reason`` and ``message`` are the attempt's
    at its end.
    """

    keep: bool = False
    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,99}$")] = "cancelled"
    message: Annotated[str, Field(max_length=1000)] = "cancelled on request"


class DrainService(Message):
    """Stop giving a service to attempts that have not begun; those that have go on to their end."""

    reason: Annotated[str, Field(min_length=1, max_length=500)]


class BytesFreed(Message):
    """Answer to a deletion; 0 where there was nothing (any more)."""

    bytes: int


class WorkloadStatus(Message):
    """Answer to submit, cancel and status."""

    job_id: str
    attempt: int
    state: WorkloadState
    reason: str | None = None  # machine-readable, e.g. "non_finite_loss"
    message: str | None = None  # for people
    step: int = 0
    total_steps: int = 0


class BaseModelInfo(Message):
    """A resident base model as the runtime reports it."""

    name: str
    revision: str
    parameters: int
    hidden_size: int
    layers: int
    dtype: str
    device: str
    random_weights: bool
    lora_modules: tuple[TextModules, ...] = ()  # what LoRA may update; empty: not told


class ServiceStatus(Message):
    """Busy share of one service over the trailing window, measured by the runtime itself."""

    service: str  # training | inference | environment
    state: str  # idle | busy | stopped | draining
    reason: str | None = None  # why it is stopped, or what the operator said who drains it
    busy_share: float  # busy_us / window_us
    window_s: float
    queue_depth: int
    group_size_mean: float | None = None  # None when nothing ran in the window
    latency_p95_ms: float | None = None  # from request to answer, of the inference service
    seats_used: int | None = None  # of seats_total, by whomever; of the environment service
    seats_total: int | None = None


class FeatureStoreStatus(Message):
    """What is kept of the frozen bases' features of demonstrations: counts since the start, bytes at the moment."""

    hits: int
    misses: int
    ram_bytes: int
    file_bytes: int
    entries: int
    versions: tuple[str, ...] = ()  # ids of the dataset versions they are of, for the platform alone
    problem: str | None = None  # why nothing is written to files any more


class VisionReuseStatus(Message):
    """Pictures that went through a vision tower for predictions: counts since the start, bytes at the moment."""

    hits: int  # known from an earlier call of the same tenant, and not run again
    misses: int
    bytes: int  # kept on the device


class RuntimeStatus(Message):
    """The gateway's own account of itself."""

    journal_id: str
    last_seq: int
    accepting: bool
    reason: str | None = None  # e.g. "journal_unwritable", "disk_full"
    bases: tuple[BaseModelInfo, ...]
    services: tuple[ServiceStatus, ...]
    active_jobs: int
    partition_bytes: int
    env_seats_per_tenant: int | None = None  # simulated environments one tenant may hold; None: not told
    env_namespaces: tuple[str, ...] | None = None  # of the simulators' ids, "" is ManiSkill's; None: not told
    starts: int | None = None  # of the runtime on this journal, the present one included; None: not told
    started_at_us: int | None = None  # the present start; None: not told
    feature_store: FeatureStoreStatus | None = None  # None: not told, or nothing is kept
    vision_reuse: VisionReuseStatus | None = None  # of all bases together; None: not told, or nothing is kept


# --- events -----------------------------------------------------------------------------------------------------


class StateChanged(Message):
    type: Literal["state"] = "state"
    state: WorkloadState
    reason: str | None = None
    message: str | None = None
    step: int = 0
    total_steps: int = 0


class MetricsRecorded(Message):
    """Values of one optimizer or evaluation step. Unique by (job, attempt, step, name)."""

    type: Literal["metrics"] = "metrics"
    step: int
    values: dict[str, float]  # NaN and infinity are kept


class UsageLine(Message):
    meter: str  # tenants.billing.models.Meter lists them: train.*, predict.*, env.*
    quantity: Annotated[int, Field(ge=0)]


class UsageMetered(Message):
    """What one device step cost this tenant. ``event_id`` is unique for ever."""

    type: Literal["usage"] = "usage"
    event_id: str
    span_id: str
    step: int
    lines: tuple[UsageLine, ...]
    group_size: int
    billable: bool = True
    reason: str | None = None  # why not billable, e.g. "redone_after_restart"


class SpanMeasured(Message):
    """One measured device step. ``busy_us == sum(shares.values()) + overhead_us``, always."""

    type: Literal["span"] = "span"
    span_id: str
    service: str
    started_at_us: int  # Unix time
    busy_us: int
    overhead_us: int
    shares: dict[str, int]  # tenant id -> microseconds
    group_size: int  # training jobs in the group
    samples: int
    tokens: int


class LogWritten(Message):
    type: Literal["log"] = "log"
    level: Literal["info", "warning", "error"]
    message: str


class ArtifactFile(Message):
    path: str
    bytes: int
    sha256: str


class ArtifactPublished(Message):
    type: Literal["artifact"] = "artifact"
    artifact_id: str
    kind: Literal["adapter", "checkpoint", "evaluation", "video", "dataset"]
    media_type: str = "application/zip"
    name: str
    policy_version: int
    bytes: int
    sha256: str  # of the file the gateway serves
    files: tuple[ArtifactFile, ...]
    manifest: dict[str, object]


class PolicyVersionPublished(Message):
    """A durable policy version: the count of applied optimizer steps of this slot."""

    type: Literal["policy_version"] = "policy_version"
    version: int
    step: int
    checkpoint: str  # folder name under the job's checkpoints
    sha256: str


EventBody = Annotated[
    StateChanged
    | MetricsRecorded
    | UsageMetered
    | SpanMeasured
    | LogWritten
    | ArtifactPublished
    | PolicyVersionPublished,
    Field(discriminator="type"),
]


class Event(Message):
    """One journal entry. ``seq`` rises by one or more per entry and never repeats within a journal."""

    seq: int
    job_id: str | None  # None for platform-wide events (spans)
    attempt: int | None
    tenant_id: str | None
    occurred_at_us: int  # Unix time
    body: EventBody


class EventBatch(Message):
    """``journal_id`` changes when a runtime starts with an empty journal: cursors of another journal are void."""

    journal_id: str
    events: tuple[Event, ...]
    last_seq: int


class ErrorBody(Message):
    """Every refusal of the gateway."""

    code: str
    message: str
    field: str | None = None
