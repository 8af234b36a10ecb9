"""What a training queue is made of, and the questions it answers."""

from gpu_runtime.protocol.ids import JobId, PartitionId
from gpu_runtime.scheduler.batch_former import BatchFormer
from gpu_runtime.scheduler.job_table import JobTable
from gpu_runtime.scheduler.leases import LeaseBook
from gpu_runtime.scheduler.states import TrainingJobState
from gpu_runtime.scheduler.training_job import QueueLimits, TrainingJob
from gpu_runtime.scheduler.turns import Turns


class QueueState:
    """The read side of ``TrainingQueue``: nothing here changes anything."""

    def __init__(self, limits: QueueLimits, *, batch_limit_tokens: int, window_us: int, wait_us: int) -> None:
        self._limits = limits
        self._table = JobTable(limits)
        self._leases = LeaseBook(ttl_us=limits.lease_ttl_us)
        self._former: BatchFormer[PartitionId] = BatchFormer(
            batch_limit_tokens=batch_limit_tokens, window_us=window_us, wait_us=wait_us
        )
        self._turns = Turns(self._table, self._former, self._leases)

    def job(self, partition_id: PartitionId) -> TrainingJob:
        """Raises UnknownPartition, also for one that ended and was cleared long ago."""
        return self._table.get(partition_id)

    def jobs(self) -> tuple[TrainingJob, ...]:
        """All retained training jobs, ended ones included until they are cleared and forgotten."""
        return tuple(self._table)

    def awaiting_clear(self) -> tuple[PartitionId, ...]:
        """Ended partitions whose bytes are still to be deleted."""
        return tuple(self._table.clearing)

    def depth(self) -> int:
        """Partitions that are ready and not leased."""
        return self._table.counts[TrainingJobState.READY]

    def in_flight(self, job_id: JobId) -> int:
        """Partitions of the job between reserve and their end."""
        return self._table.order.count(job_id)

    def live_bytes(self) -> int:
        """Bytes that the store must be holding."""
        return self._table.retention.live_bytes

    def policy_version(self, job_id: JobId) -> int:
        return self._turns.policy_version(job_id)

    @property
    def former(self) -> BatchFormer[PartitionId]:
        """For measuring fairness; its counters are read-only to everyone else."""
        return self._former

    @property
    def leases(self) -> LeaseBook:
        """For checking leases; read-only to everyone else."""
        return self._leases
