"""All training jobs the queue knows, with every index over them kept in step by one write method."""

from collections import Counter, deque
from collections.abc import Iterator

from gpu_runtime.protocol.ids import JobId, PartitionId
from gpu_runtime.scheduler.errors import DuplicatePartition, InvalidTransition, UnknownPartition
from gpu_runtime.scheduler.retention import Retention
from gpu_runtime.scheduler.states import TRANSITIONS, TrainingJobState
from gpu_runtime.scheduler.step_order import StepOrder
from gpu_runtime.scheduler.training_job import QueueLimits, TrainingJob

HISTORY_MAX = 4096  # ended and cleared jobs kept for questions; older ones are forgotten


class JobTable:
    """Rows are replaced whole. The indexes: bytes, order within a job, number in each state, what is to be cleared."""

    def __init__(self, limits: QueueLimits) -> None:
        self.retention = Retention(limits)
        self.order = StepOrder()
        self.counts: Counter[TrainingJobState] = Counter()
        self._jobs: dict[PartitionId, TrainingJob] = {}
        self._history: deque[PartitionId] = deque()
        self.clearing: dict[PartitionId, None] = {}  # an ordered set
        self.seq = 0  # last created_seq or ready_seq

    def __iter__(self) -> Iterator[TrainingJob]:
        return iter(self._jobs.values())

    def get(self, partition_id: PartitionId) -> TrainingJob:
        job = self._jobs.get(partition_id)
        if job is None:
            raise UnknownPartition(f"no training job is retained for partition {partition_id}")
        return job

    def add(self, job: TrainingJob) -> None:
        if job.partition_id in self._jobs:
            raise DuplicatePartition(f"partition {job.partition_id} was reserved before")
        self.retention.check(None, job)
        self.order.add(job)
        self._write(None, job)
        self.seq = job.created_seq

    def replace(self, job: TrainingJob) -> None:
        """The next value of a row. Raises InvalidTransition or QueueFull, and then nothing has changed."""
        old = self.get(job.partition_id)
        if job.state is not old.state and job.state not in TRANSITIONS[old.state]:
            raise InvalidTransition(f"partition {job.partition_id} is {old.state}, so it can't become {job.state}")
        self.retention.check(old, job)
        if job.ended and not old.ended:
            self.order.remove(job)
        self._write(old, job)
        if job.ended and not job.clearing:
            self._retire(job.partition_id)

    def restore(self, job: TrainingJob) -> None:
        """Take over a row from a dump, whatever the limits are now."""
        if not job.ended:
            self.order.add(job)
        self._write(None, job)

    def head(self, job_id: JobId) -> TrainingJob | None:
        partition_id = self.order.head(job_id)
        return None if partition_id is None else self._jobs[partition_id]

    def live(self, job_id: JobId) -> list[TrainingJob]:
        """The job's partitions that have not ended, in the order they must be consumed."""
        return [self._jobs[partition_id] for partition_id in self.order.partitions(job_id)]

    def updates_before(self, job_id: JobId, step: int) -> int:
        """Optimizer steps of the job that are consumed before a new partition of this step."""
        return sum(job.updates_policy and job.step <= step for job in self.live(job_id))

    def _write(self, old: TrainingJob | None, new: TrainingJob) -> None:
        self._jobs[new.partition_id] = new
        self.retention.replace(old, new)
        if new.clearing:
            self.clearing[new.partition_id] = None
        else:
            self.clearing.pop(new.partition_id, None)
        if old is not None:
            self.counts[old.state] -= 1
        self.counts[new.state] += 1

    def _retire(self, partition_id: PartitionId) -> None:
        self._history.append(partition_id)
        if len(self._history) > HISTORY_MAX:
            forgotten = self._jobs.pop(self._history.popleft())
            self.counts[forgotten.state] -= 1
