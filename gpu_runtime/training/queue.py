"""The training queue of this process: the pure state machine under the real clock, together with its payloads."""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from gpu_runtime.protocol.ids import JobId, PartitionId, TenantId
from gpu_runtime.scheduler.errors import InFlightBound, QueueFull, StaleEpoch, StalenessBound
from gpu_runtime.scheduler.training_queue import Freshness, Group, LeasedJob, TrainingJobState, TrainingQueue
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.store.signal import Signal
from gpu_runtime.training.ahead import ReadAhead
from gpu_runtime.training.clock import monotonic_us
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.payloads import Payload, Payloads
from gpu_runtime.training.work import Work

T = TypeVar("T")


class SharedQueue:
    """Producers reserve, put and mark ready; the training service leases and settles. Event loop only."""

    def __init__(
        self,
        queue: TrainingQueue,
        partitions: PartitionStore,
        durability: Durability,
        files: Executor,
        max_partition_bytes: int,
        ahead: ReadAhead | None = None,
    ) -> None:
        """``ahead``: reads payloads before their turn; None: nobody does."""
        self.queue = queue
        self._ahead = ahead
        self.changed = Signal()  # something became ready, was settled or was freed
        self._payloads = Payloads(partitions, durability, files, max_partition_bytes, self.changed)
        self._jobs: dict[str, MountedJob] = {}  # by partition that has not ended

    async def reserve(
        self,
        job: MountedJob,
        work: Work,
        partition_id: str,
        *,
        priority: int,
        samples: int,
        tokens: int,
        freshness: Callable[[], Freshness] | Freshness | None = None,
        bytes_expected: int = 0,
    ) -> bool:
        """Book a place for one partition; waits while the job or the queue is at its limit.

        ``freshness`` of data that age; as a function it is asked again at each try: what would be too old under one
        version need not be under the next. Whoever publishes a version notifies ``changed``. False when the job was
        stopped meanwhile.
        """
        while not job.stopped:
            try:
                self.queue.reserve(
                    now_us=monotonic_us(),
                    partition_id=PartitionId(partition_id),
                    tenant_id=TenantId(job.tenant_id),
                    job_id=JobId(job.key),
                    purpose=work.purpose,
                    group_key=job.backbone.group_key,
                    priority=priority,
                    step=work.step,
                    samples=samples,
                    tokens=tokens,
                    freshness=freshness() if callable(freshness) else freshness,
                    bytes_expected=bytes_expected,
                )
            except (InFlightBound, QueueFull, StalenessBound):
                await self.changed.wait()
            else:
                job.outstanding[partition_id] = work
                self._jobs[partition_id] = job
                return True
        return False

    def advance(self, partition_id: str, stage: TrainingJobState) -> None:
        """The producer has entered a later stage of production. A partition that ended meanwhile has none."""
        if partition_id in self._jobs:
            self.queue.advance(PartitionId(partition_id), stage)

    def abandon(self, job: MountedJob, partition_id: str, *, reason: str) -> None:
        """The producer gave up on this partition; the job goes on. One that ended meanwhile is settled already."""
        if partition_id not in job.outstanding:
            return
        self._end(self.queue.abandon(PartitionId(partition_id), reason=reason))
        self._drop_stale()
        self.changed.notify()

    async def put(self, job: MountedJob, partition_id: str, payload: Payload) -> None:
        """Write the payload and offer the partition; waits while there is no room for it.

        Raises PartitionTooLarge when there never will be. Cancelled meanwhile, it gives the partition up.
        """
        size = await self._write(job, partition_id, payload)
        while size is not None and partition_id in job.outstanding:
            try:
                self.queue.queue_put(PartitionId(partition_id), bytes=size)
                self._offer(job, partition_id, size)
                return
            except QueueFull:
                await self.changed.wait()
        self._payloads.clear(partition_id)  # it ended while its payload was being written

    async def _write(self, job: MountedJob, partition_id: str, payload: Payload) -> int | None:
        """Bytes of the payload on disk; None when the partition ended meanwhile."""

        def over() -> bool:
            return job.stopped or partition_id not in job.outstanding

        writing = asyncio.create_task(self._payloads.write(partition_id, payload, over))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:  # a thread that writes can't be called back: what it leaves is removed
            self.abandon(job, partition_id, reason="cancelled")
            await asyncio.wait({writing})
            self._payloads.clear(partition_id)
            raise

    def refuse_too_large(self, size: int) -> None:
        """Raise PartitionTooLarge for a payload of so many bytes that there never would be room for it."""
        self._payloads.refuse_too_large(size)

    def _offer(self, job: MountedJob, partition_id: str, size: int) -> None:
        now_us = monotonic_us()
        self.queue.mark_ready(PartitionId(partition_id), now_us=now_us)
        job.ready_at_us[partition_id] = now_us
        if self._ahead is not None:
            self._ahead.offer(job, partition_id, size)
        self._drop_stale()
        self.changed.notify()

    def next_group(self) -> Group | None:
        """Lease the group that is due, if any; leases of a service that vanished run out first."""
        now_us = monotonic_us()
        self.queue.expire_leases(now_us)
        self._drop_stale()
        return self.queue.next_group(now_us=now_us)

    def read(self, partition_id: str) -> Future[Any] | None:
        """What was read ahead of a partition that is leased now; None: nothing was."""
        return None if self._ahead is None else self._ahead.take(partition_id)

    def read_ahead(self) -> None:
        """The device is at work: read for its next steps."""
        if self._ahead is not None:
            self._ahead.fill()

    def wait_s(self) -> float | None:
        """Seconds until a waiting group is due; None when nothing is ready."""
        now_us = monotonic_us()
        wakeup_us = self.queue.next_wakeup_us(now_us)
        return None if wakeup_us is None else max(0, wakeup_us - now_us) / 1e6

    def renew(self, lease: LeasedJob) -> None:
        """Keep a lease alive during a long step; a job cancelled meanwhile has none, which is fine."""
        try:
            self.queue.renew(lease.job.partition_id, lease.epoch, now_us=monotonic_us())
        except StaleEpoch:
            return

    def settle(self, job: MountedJob, lease: LeasedJob, *, charge_us: int, reason: str | None = None) -> None:
        """Complete (or with a ``reason`` fail) a leased partition.

        Its bytes are returned once the caller waits for something: the device is not kept waiting for that. A lease
        that ended meanwhile (cancelled) is settled already.
        """
        partition_id, epoch = lease.job.partition_id, lease.epoch
        ended: Collection[PartitionId] = (partition_id,)
        try:
            if reason is None:
                self.queue.complete(partition_id, epoch, charge_us=charge_us)
            else:
                ended = self.queue.fail(partition_id, epoch, reason=reason, charge_us=charge_us)
        except StaleEpoch:
            self.queue.charge(lease.job.tenant_id, charge_us=charge_us)
            self._stop_if_due(job)
            return
        if reason is None:
            job.stale_in_a_row = 0
        self._forget(ended)
        self._stop_if_due(job)
        asyncio.get_running_loop().call_soon(self._return, tuple(ended))

    def _return(self, ended: Collection[PartitionId]) -> None:
        """Return the bytes of partitions that are forgotten."""
        for partition_id in ended:
            self._clear(partition_id)
        self._drop_stale()
        self.changed.notify()

    def finish_job(self, job: MountedJob, *, step: int) -> None:
        """``stop_job`` as soon as the job has come to ``step`` and nothing of it is leased: a step under way is
        finished, and what it made is the job's."""
        job.stop_after = step
        self._stop_if_due(job)

    def _stop_if_due(self, job: MountedJob) -> None:
        if job.stop_after is None or job.stopped:
            return
        leased = any(self.queue.job(PartitionId(name)).state is TrainingJobState.LEASED for name in job.outstanding)
        if not leased and job.slot.step >= job.stop_after:
            self.stop_job(job, reason="stopped_after_step")

    def stop_job(self, job: MountedJob, *, reason: str) -> None:
        """Stop producing and consuming for this job: its partitions end and return their bytes."""
        job.stopped = True
        self._end(self.queue.cancel_job(JobId(job.key), reason=reason))
        for partition_id in list(job.outstanding):
            self._jobs.pop(partition_id, None)
            if job.frames is not None:
                job.frames.drop(partition_id)
        job.outstanding.clear()
        self.changed.notify()

    def depth(self) -> int:
        """Partitions that are ready and not leased."""
        return self.queue.depth()

    def dump(self) -> dict[str, Any]:
        """The queue as JSON types, for the journal."""
        return self.queue.dump()

    def _drop_stale(self) -> None:
        """See off partitions that were too old when their turn came: their producers hear of it by ``changed``."""
        stale = [
            partition_id
            for partition_id in self.queue.awaiting_clear()
            if self.queue.job(partition_id).state is TrainingJobState.DROPPED_STALE
        ]
        for partition_id in stale:
            job = self._jobs.get(partition_id)
            if job is not None:
                job.dropped_stale += 1
                job.stale_in_a_row += 1
        self._end(stale)
        if stale:
            self.changed.notify()

    def _end(self, ended: Collection[PartitionId]) -> None:
        """Forget partitions that have ended and return their bytes."""
        self._forget(ended)
        for partition_id in ended:
            self._clear(partition_id)

    def _forget(self, ended: Collection[PartitionId]) -> None:
        for partition_id in ended:
            job = self._jobs.pop(partition_id, None)
            if job is not None:
                job.outstanding.pop(partition_id, None)
                if job.frames is not None:
                    job.frames.drop(partition_id)
                job.ready_at_us.pop(partition_id, None)

    def _clear(self, partition_id: PartitionId) -> None:
        if self._ahead is not None:
            self._ahead.drop(partition_id)
        self._payloads.clear(partition_id)
        self.queue.cleared(partition_id)


async def run_in(executor: Executor | None, action: Callable[..., T], *arguments: Any) -> T:
    """Run blocking work in ``executor`` (None: the event loop's own)."""
    return await asyncio.get_running_loop().run_in_executor(executor, action, *arguments)
