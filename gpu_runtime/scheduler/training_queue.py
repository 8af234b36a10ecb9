"""The Training Queue: admits partitions, orders them, leases them in fair groups, and sees them off exactly once."""

from collections.abc import Collection
from typing import Any, Self

from gpu_runtime.protocol.ids import JobId, PartitionId, TenantId
from gpu_runtime.scheduler import snapshot
from gpu_runtime.scheduler.errors import InFlightBound, InvalidTransition, require
from gpu_runtime.scheduler.queue_state import QueueState
from gpu_runtime.scheduler.staleness import Freshness, admit
from gpu_runtime.scheduler.states import IN_PRODUCTION, Purpose, TrainingJobState
from gpu_runtime.scheduler.training_job import Group, LeasedJob, QueueLimits, TrainingJob

__all__ = [
    "Freshness",
    "Group",
    "LeasedJob",
    "Purpose",
    "QueueLimits",
    "TrainingJob",
    "TrainingJobState",
    "TrainingQueue",
]


class TrainingQueue(QueueState):
    """One training service's queue. A refusal raises a SchedulerError and changes nothing.

    A job's partitions are consumed in order of step, one at a time; jobs of one tenant and of different tenants
    share a group. A partition that fails takes the later ones of its job with it. Whoever ends a partition then
    deletes its bytes and says so by ``cleared``. Questions, which change nothing, are in ``QueueState``.
    """

    # --- production -------------------------------------------------------------------------------------------

    def set_weight(self, tenant_id: TenantId, weight: int) -> None:
        """The tenant's share against other backlogged tenants; 1 until set."""
        self._former.set_weight(tenant_id, weight)

    def set_policy_version(self, job_id: JobId, version: int) -> None:
        """Count of updates in the mounted weights; from here on the queue counts completed TRAIN partitions."""
        require(version >= 0, "version", version, "zero or more")
        self._turns.set_policy_version(job_id, version)

    def reserve(
        self,
        *,
        now_us: int,
        partition_id: PartitionId,
        tenant_id: TenantId,
        job_id: JobId,
        purpose: Purpose,
        group_key: str,
        priority: int,
        step: int,
        samples: int,
        tokens: int,
        freshness: Freshness | None = None,
        bytes_expected: int = 0,
    ) -> TrainingJob:
        """Admit a partition before it is produced.

        ``bytes_expected`` keeps room for it. Raises InFlightBound, QueueFull, StalenessBound, DuplicatePartition
        or InvalidRequest.
        """
        if self.in_flight(job_id) >= self._limits.in_flight_per_job:
            raise InFlightBound(f"job {job_id} has {self.in_flight(job_id)} partitions in flight, as many as it may")
        if freshness is not None:
            ahead = self._table.updates_before(job_id, step)
            admit(freshness, policy_version=self.policy_version(job_id), updates_ahead=ahead)
        self._table.retention.check_open(tenant_id)
        job = TrainingJob(
            partition_id=partition_id,
            job_id=job_id,
            tenant_id=tenant_id,
            purpose=purpose,
            group_key=group_key,
            priority=priority,
            step=step,
            samples=samples,
            tokens=tokens,
            freshness=freshness,
            bytes_expected=bytes_expected,
            created_seq=self._table.seq + 1,
            created_us=now_us,
        )
        self._table.add(job)
        self._turns.offer(job_id)
        return job

    def advance(self, partition_id: PartitionId, stage: TrainingJobState) -> TrainingJob:
        """The producer has entered a later production stage."""
        require(stage in IN_PRODUCTION, "stage", stage, f"one of {[str(state) for state in IN_PRODUCTION]}")
        return self._turns.change(self._table.get(partition_id), state=stage)

    def queue_put(self, partition_id: PartitionId, *, bytes: int) -> TrainingJob:
        """The producer has written this many more bytes of the partition."""
        require(bytes > 0, "bytes", bytes, "above zero")
        job = self._table.get(partition_id)
        if job.state not in IN_PRODUCTION:
            raise InvalidTransition(f"partition {partition_id} is {job.state}, so nothing can be put into it")
        state = TrainingJobState.PRODUCING if job.state is TrainingJobState.RESERVED else job.state
        return self._turns.change(job, state=state, bytes=job.bytes + bytes)

    def mark_ready(self, partition_id: PartitionId, *, now_us: int) -> TrainingJob:
        """The partition is complete and may be leased when its turn comes."""
        job = self._table.get(partition_id)
        if job.state not in IN_PRODUCTION or not job.bytes:
            raise InvalidTransition(f"partition {partition_id} is {job.state} with {job.bytes} bytes: not complete")
        job = self._turns.change(job, state=TrainingJobState.READY, ready_seq=self._table.seq + 1, ready_us=now_us)
        self._table.seq += 1
        self._turns.offer(job.job_id, fire_at_us=self._former.fire_at_us(now_us))
        return job

    def abandon(self, partition_id: PartitionId, *, reason: str) -> tuple[PartitionId, ...]:
        """The producer gave up. Ends the partition and the later ones of its job; returns their ids.

        Of data that age each partition stands for itself, as when one of them is dropped: the later ones stay.
        """
        require(bool(reason), "reason", reason, "a word that says why")
        job = self._table.get(partition_id)
        if job.state not in IN_PRODUCTION:
            raise InvalidTransition(f"partition {partition_id} is {job.state}, so it can't be abandoned")
        if job.freshness is not None:
            self._turns.end(job, TrainingJobState.FAILED, reason)
            self._turns.offer(job.job_id)
            return (partition_id,)
        return self._turns.end_with_followers(job, TrainingJobState.FAILED, reason)

    # --- consumption ------------------------------------------------------------------------------------------

    def next_group(self, *, now_us: int) -> Group | None:
        """Lease the next fair group, or None when nothing is ready or it pays to wait until ``next_wakeup_us``."""
        batch = self._former.take(now_us=now_us)
        if batch is None:
            return None
        leases = tuple(self._turns.lease(pick.request.request_id, now_us=now_us) for pick in batch.picks)
        return Group(leases=leases, group_key=batch.group_key)

    def next_wakeup_us(self, now_us: int) -> int | None:
        """When to ask again though nothing happened: a group fires or a lease expires."""
        times = [time for time in (self._former.next_fire_us(), self._leases.next_expiry_us()) if time is not None]
        return max(now_us, min(times)) if times else None

    def renew(self, partition_id: PartitionId, epoch: int, *, now_us: int) -> TrainingJob:
        """Keep a lease for another TTL. Raises StaleEpoch."""
        lease = self._leases.renew(partition_id, epoch, now_us=now_us)
        return self._turns.change(self._table.get(partition_id), lease=lease)

    def release(self, partition_id: PartitionId, epoch: int) -> TrainingJob:
        """Give a lease back without any effect, e.g. batch mates of a failed slice. Costs no attempt."""
        self._leases.verify(partition_id, epoch)
        job = self._table.get(partition_id)
        return self._turns.take_back(job, attempts=job.attempts - 1)

    def complete(self, partition_id: PartitionId, epoch: int, *, charge_us: int) -> TrainingJob:
        """The partition was consumed. A TRAIN partition raises its job's policy version by one."""
        require(charge_us >= 0, "charge_us", charge_us, "zero or more")
        self._leases.verify(partition_id, epoch)
        self._former.settle(partition_id, charge_us=charge_us)
        return self._turns.consume(self._table.get(partition_id))

    def fail(self, partition_id: PartitionId, epoch: int, *, reason: str, charge_us: int) -> tuple[PartitionId, ...]:
        """Consuming it failed. Ends the partition and the later ones of its job; returns their ids."""
        require(bool(reason), "reason", reason, "a word that says why")
        require(charge_us >= 0, "charge_us", charge_us, "zero or more")
        self._leases.verify(partition_id, epoch)
        self._former.settle(partition_id, charge_us=charge_us)
        return self._turns.end_with_followers(self._table.get(partition_id), TrainingJobState.FAILED, reason)

    def charge(self, tenant_id: TenantId, *, charge_us: int) -> None:
        """Count device time of a tenant whose lease was taken back meanwhile, so that cancelling is not free."""
        self._former.charge(tenant_id, charge_us)

    def cancel_job(self, job_id: JobId, *, reason: str) -> tuple[PartitionId, ...]:
        """End all its partitions and forget its policy version; live leases are stale at once. Returns the ids."""
        require(bool(reason), "reason", reason, "a word that says why")
        ended = [self._turns.end(job, TrainingJobState.CANCELLED, reason) for job in self._table.live(job_id)]
        self._turns.forget(job_id)
        return tuple(job.partition_id for job in ended)

    def expire_leases(self, now_us: int) -> tuple[PartitionId, ...]:
        """Take back every lease that was not renewed; a partition out of attempts ends. Returns the ids concerned."""
        lapsed = tuple(self._leases.lapsed(now_us))
        for partition_id in lapsed:
            self._turns.lapse(self._table.get(partition_id), max_attempts=self._limits.max_attempts)
        return lapsed

    def cleared(self, partition_id: PartitionId) -> None:
        """The store has deleted the bytes of an ended partition. Clearing twice is no error."""
        job = self._table.get(partition_id)
        if not job.ended:
            raise InvalidTransition(f"partition {partition_id} is {job.state}, so its bytes are still needed")
        if job.clearing:
            self._turns.change(job, bytes=0)

    # --- crash and reload ---------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """JSON-able state. Whoever keeps it dumps again right after ``load``, so that epochs stay unique."""
        return snapshot.dump(self._table, self._turns, self._former, self._leases)

    @classmethod
    def load(
        cls,
        state: dict[str, Any],
        limits: QueueLimits,
        *,
        batch_limit_tokens: int,
        window_us: int,
        wait_us: int,
        consumed: Collection[PartitionId] = frozenset(),
    ) -> Self:
        """Continue after a crash, with every worker of the previous run fenced off.

        Leased partitions are ready again, or expired if out of attempts; ``consumed`` ones, which the durable
        weights contain, are completed. What was in production is lost: failed with "runtime_restart".
        """
        queue = cls(limits, batch_limit_tokens=batch_limit_tokens, window_us=window_us, wait_us=wait_us)
        snapshot.restore(state, queue._table, queue._turns, queue._former, queue._leases)
        snapshot.recover(queue._table, queue._turns, consumed=consumed, max_attempts=limits.max_attempts)
        return queue
