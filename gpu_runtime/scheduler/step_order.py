"""The partitions of each job, in the order they must be consumed."""

from collections import defaultdict

from gpu_runtime.protocol.ids import JobId, PartitionId
from gpu_runtime.scheduler.training_job import TrainingJob


class StepOrder:
    """Live partitions by job. A job has few (its in-flight bound), so a sorted list is enough."""

    def __init__(self) -> None:
        self._places: defaultdict[JobId, dict[PartitionId, tuple[int, int]]] = defaultdict(dict)

    def add(self, job: TrainingJob) -> None:
        self._places[job.job_id][job.partition_id] = job.place

    def remove(self, job: TrainingJob) -> None:
        places = self._places[job.job_id]
        del places[job.partition_id]
        if not places:
            del self._places[job.job_id]

    def partitions(self, job_id: JobId) -> list[PartitionId]:
        """In order of step, then of reservation."""
        places = self._places.get(job_id, {})
        return sorted(places, key=places.__getitem__)

    def head(self, job_id: JobId) -> PartitionId | None:
        """The only partition of the job that may be consumed next."""
        return next(iter(self.partitions(job_id)), None)

    def followers(self, job: TrainingJob) -> list[PartitionId]:
        """Partitions that come after this one."""
        places = self._places.get(job.job_id, {})
        return [other for other in self.partitions(job.job_id) if places[other] > job.place]

    def count(self, job_id: JobId) -> int:
        return len(self._places.get(job_id, ()))
