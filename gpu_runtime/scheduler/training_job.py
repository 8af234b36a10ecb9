"""Training jobs and what the training queue hands out. All immutable: a change makes a new value."""

from dataclasses import dataclass

from gpu_runtime.protocol.ids import JobId, PartitionId, TenantId
from gpu_runtime.scheduler.errors import require
from gpu_runtime.scheduler.leases import Lease
from gpu_runtime.scheduler.staleness import Freshness
from gpu_runtime.scheduler.states import TERMINAL, Purpose, TrainingJobState


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Memory and patience. None of these makes fairness; that is the batch former's work."""

    in_flight_per_job: int = 4  # partitions between reserve and their end
    bytes_per_tenant: int  # retained partitions
    bytes_total: int
    lease_ttl_us: int
    max_attempts: int = 3  # leases of one partition that may lapse

    def __post_init__(self) -> None:
        for field in self.__slots__:
            require(getattr(self, field) > 0, field, getattr(self, field), "above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Descriptor of one partition: one unit of work of a job, from reserve to its end."""

    partition_id: PartitionId
    job_id: JobId
    tenant_id: TenantId
    purpose: Purpose
    group_key: str  # compatibility class of the frozen forward
    priority: int  # among the tenant's own jobs; higher first
    step: int  # a job's partitions run in order of step, then of reservation
    samples: int
    tokens: int
    freshness: Freshness | None = None  # None: data that does not age, e.g. demonstrations
    state: TrainingJobState = TrainingJobState.RESERVED
    created_seq: int
    created_us: int
    ready_seq: int | None = None
    ready_us: int | None = None
    bytes: int = 0  # on disk, until cleared
    bytes_expected: int = 0  # room kept for it while it is in production
    lease: Lease | None = None
    attempts: int = 0  # leases so far, without those given back in good order
    reason: str | None = None  # why it ended without being consumed

    def __post_init__(self) -> None:
        for field in ("partition_id", "job_id", "tenant_id", "group_key"):
            require(bool(getattr(self, field)), field, getattr(self, field), "a name that is not empty")
        for field, least in (("step", 0), ("samples", 1), ("tokens", 1), ("bytes_expected", 0)):
            require(getattr(self, field) >= least, field, getattr(self, field), f"{least} or more")

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def clearing(self) -> bool:
        """Ended, and its bytes are still to be returned. Not the same as never produced."""
        return self.ended and self.bytes > 0

    @property
    def updates_policy(self) -> bool:
        """Consuming it raises the job's policy version by one."""
        return self.purpose is Purpose.TRAIN

    @property
    def place(self) -> tuple[int, int]:
        """Position among the partitions of its job."""
        return (self.step, self.created_seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedJob:
    """A training job and the epoch that every effect for it must carry."""

    job: TrainingJob
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Training jobs that share one frozen forward; at most one per job. The first one's tenant leads."""

    leases: tuple[LeasedJob, ...]
    group_key: str

    @property
    def tokens(self) -> int:
        return sum(leased.job.tokens for leased in self.leases)
