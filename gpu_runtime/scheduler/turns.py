"""Whose turn it is: keeps the batch former, the leases and the job table in step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_runtime.protocol.ids import JobId, PartitionId
from gpu_runtime.scheduler.backlog import Request
from gpu_runtime.scheduler.batch_former import BatchFormer
from gpu_runtime.scheduler.errors import InvalidTransition
from gpu_runtime.scheduler.job_table import JobTable
from gpu_runtime.scheduler.leases import LeaseBook
from gpu_runtime.scheduler.states import TrainingJobState
from gpu_runtime.scheduler.training_job import LeasedJob, TrainingJob

UNAGEING = 1 << 62  # slack of data that never gets stale: after everything that does


class Turns:
    """Offers each job's first partition, and only that, while none of the job is leased.

    So a job's steps are consumed strictly in order, and at most one of them is in a group. Staleness is checked
    when a partition becomes first; the policy version can't change between then and its lease.
    """

    def __init__(self, table: JobTable, former: BatchFormer[PartitionId], leases: LeaseBook) -> None:
        self._table = table
        self._former = former
        self._leases = leases
        self._offered: dict[JobId, PartitionId] = {}
        self._versions: dict[JobId, int] = {}

    def policy_version(self, job_id: JobId) -> int:
        return self._versions.get(job_id, 0)

    def set_policy_version(self, job_id: JobId, version: int) -> None:
        """Offers anew, because the first partition may have become stale by this. Refused while one is leased."""
        if self._leased(job_id):
            raise InvalidTransition(f"a partition of job {job_id} is leased: its weights can't be replaced now")
        self._versions[job_id] = version
        self._withdraw(job_id)
        self.offer(job_id)

    def restore(self, versions: Mapping[JobId, int]) -> None:
        """Take over dumped policy versions, before anything is offered."""
        self._versions = dict(versions)

    def forget(self, job_id: JobId) -> None:
        self._versions.pop(job_id, None)

    def versions(self) -> Mapping[JobId, int]:
        return self._versions

    def offer(self, job_id: JobId, *, fire_at_us: int | None = None) -> None:
        """Offer the job's first partition if it is ready; drop those that have become too old."""
        head = self._table.head(job_id)
        while head is not None and head.state is TrainingJobState.READY and self._slack(head) < 0:
            self.end(head, TrainingJobState.DROPPED_STALE, "stale")
            head = self._table.head(job_id)
        if head is None or self._offered.get(job_id) == head.partition_id or self._leased(job_id):
            return
        self._withdraw(job_id)
        if head.state is TrainingJobState.READY:
            self._offered[job_id] = head.partition_id
            self._former.offer(self._request(head, fire_at_us))

    def lease(self, partition_id: PartitionId, *, now_us: int) -> LeasedJob:
        """Hand out a partition that the former has picked."""
        old = self._table.get(partition_id)
        del self._offered[old.job_id]
        lease = self._leases.grant(partition_id, now_us=now_us)
        job = self.change(old, state=TrainingJobState.LEASED, lease=lease, attempts=old.attempts + 1)
        return LeasedJob(job=job, epoch=lease.epoch)

    def take_back(self, job: TrainingJob, *, attempts: int) -> TrainingJob:
        """A lease ended without an effect: the partition waits again, as long as it already has."""
        self._leases.revoke(job.partition_id)
        self._former.discard(job.partition_id)
        job = self.change(job, state=TrainingJobState.READY, lease=None, attempts=attempts)
        self.offer(job.job_id)
        return job

    def lapse(self, job: TrainingJob, *, max_attempts: int) -> None:
        """A worker went silent: the partition waits again, or ends with its last attempt."""
        if job.attempts >= max_attempts:
            self.end_with_followers(job, TrainingJobState.EXPIRED, "attempts_exhausted")
        else:
            self.take_back(job, attempts=job.attempts)

    def end(self, job: TrainingJob, state: TrainingJobState, reason: str | None) -> TrainingJob:
        """Any lease of the partition is over, and its turn passes. The next one is offered by the caller."""
        self._leases.revoke(job.partition_id)
        self._former.discard(job.partition_id)
        if self._offered.get(job.job_id) == job.partition_id:
            del self._offered[job.job_id]
        return self.change(job, state=state, lease=None, reason=reason)

    def end_with_followers(self, job: TrainingJob, state: TrainingJobState, reason: str) -> tuple[PartitionId, ...]:
        """No step may overtake a failed one, so the later ones of the job end too."""
        followers = self._table.order.followers(job)
        self.end(job, state, reason)
        for partition_id in followers:
            self.end(self._table.get(partition_id), TrainingJobState.CANCELLED, "earlier_step_failed")
        self.offer(job.job_id)
        return (job.partition_id, *followers)

    def consume(self, job: TrainingJob) -> TrainingJob:
        """The one place where a partition counts as consumed."""
        job = self.end(job, TrainingJobState.COMPLETED, None)
        if job.updates_policy:
            self._versions[job.job_id] = self.policy_version(job.job_id) + 1
        self.offer(job.job_id)
        return job

    def change(self, job: TrainingJob, **values: Any) -> TrainingJob:
        job = replace(job, **values)
        self._table.replace(job)
        return job

    def _leased(self, job_id: JobId) -> bool:
        return any(job.state is TrainingJobState.LEASED for job in self._table.live(job_id))

    def _slack(self, job: TrainingJob) -> int:
        return UNAGEING if job.freshness is None else job.freshness.slack(self.policy_version(job.job_id))

    def _withdraw(self, job_id: JobId) -> None:
        partition_id = self._offered.pop(job_id, None)
        if partition_id is not None:
            self._former.discard(partition_id)

    def _request(self, job: TrainingJob, fire_at_us: int | None) -> Request[PartitionId]:
        """Within a tenant: priority, then nearest staleness deadline, then who was ready first."""
        assert job.ready_seq is not None
        assert job.ready_us is not None
        return Request(
            request_id=job.partition_id,
            tenant_id=job.tenant_id,
            group_key=job.group_key,
            tokens=job.tokens,
            order=(-job.priority, self._slack(job), job.ready_seq),
            fire_at_us=job.ready_us if fire_at_us is None else fire_at_us,
        )
