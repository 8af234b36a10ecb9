"""The training service: leases groups, runs them on the device, writes down what happened, settles."""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import torch

from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.ids import JobId, TenantId
from gpu_runtime.protocol.messages import ServiceStatus
from gpu_runtime.scheduler.training_queue import Group, LeasedJob, Purpose
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.services.saving import Saver
from gpu_runtime.services.utilization import Utilization
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.records import Entry, Write
from gpu_runtime.training.clock import monotonic_us, unix_us
from gpu_runtime.training.mounted import Failure, MountedJob
from gpu_runtime.training.queue import SharedQueue, run_in
from gpu_runtime.training.record import overhead_span, record_step
from gpu_runtime.training.step import DeviceStep, Member, StepOutcome

T = TypeVar("T")
_log = logging.getLogger(__name__)
_STORAGE_RECHECK_S = 1.0


class TrainingService:
    """One device. Decisions are the queue's, the arithmetic is the step's; this carries both out, one at a time.

    ``on_unmount`` hears of a job when nothing touches its slot any more. ``files``: threads that wait for the disk.
    """

    def __init__(
        self,
        *,
        queue: SharedQueue,
        step: DeviceStep,
        durability: Durability,
        checkpoints: Checkpoints,
        lease_ttl_us: int,
        status_window_us: int,
        threads: int = 1,
        files: Executor | None = None,
        on_unmount: Callable[[MountedJob], None] = lambda job: None,
    ) -> None:
        self._queue = queue
        self._step = step
        self._durability = durability
        self._on_unmount = on_unmount
        self._renew_every_s = lease_ttl_us / 3e6
        # torch keeps its thread count per thread on some builds: set it where the work is done
        self.compute = ThreadPoolExecutor(1, "compute", functools.partial(torch.set_num_threads, threads))
        self._saver = Saver(
            checkpoints=checkpoints,
            durability=durability,
            compute=self.compute,
            files=files,
            ended=queue.changed.notify,
        )
        self.utilization = Utilization(now_us=monotonic_us(), window_us=status_window_us)
        self._mounted: dict[str, MountedJob] = {}
        self._open_steps: Counter[str] = Counter()  # by job: begun, and not in the journal yet
        self._writing: asyncio.Task[None] | None = None  # of the step before the one on the device
        self._stopping = False

    @property
    def mounted(self) -> Sequence[MountedJob]:
        return tuple(self._mounted.values())

    async def mount(self, job: MountedJob, weight: int) -> None:
        """From here on the job's partitions can be leased. A version the last process saved is published if it died
        before it could."""
        if job.saved_step >= 0:
            await self._saver.publish(job)
        self._queue.queue.set_weight(TenantId(job.tenant_id), weight)
        self._queue.queue.set_policy_version(JobId(job.key), job.slot.policy_version)
        self._mounted[job.key] = job

    async def unmount(self, job: MountedJob) -> None:
        """Wait until no step touches the slot any more and everything it did is on the disk, then forget it."""
        while self._open_steps[job.key]:
            await self._queue.changed.wait()
        await self._saver.settled(job)
        del self._open_steps[job.key]
        self._mounted.pop(job.key, None)
        self._on_unmount(job)

    async def run(self) -> None:
        """Until ``stop``: lease, run, write down, settle. No lease is taken while nothing can be written down."""
        while not self._stopping:
            self._saver.check()
            if (problem := self._durability.problem) is not None:
                _log.debug("not leasing: %s", problem)
                await self._durability.changed.wait(_STORAGE_RECHECK_S)
            elif (group := self._queue.next_group()) is not None:
                await self._run_group(group)
            else:
                await self._queue.changed.wait(self._queue.wait_s())
        await self._written()
        await self._saver.finish()

    def stop(self) -> None:
        """Take no further lease; ``run`` returns when the step in progress is over and in the journal."""
        self._stopping = True
        self._queue.changed.notify()

    async def save(self, job: MountedJob) -> None:
        """Make the slot's state durable and publish it. After the journal knows every step that is in it."""
        await self._saver.save(job, busy=lambda: bool(self._open_steps[job.key]))

    async def platform_work(self, action: Callable[[], T]) -> T:
        """Run something on the device that no tenant pays for, between two steps; its time is overhead."""
        started_at_us, result, busy_us = await run_in(self.compute, self._step.measure, action)
        span = overhead_span(started_at_us=started_at_us, busy_us=busy_us)
        await self._durability.write(Write(entries=(Entry(body=span, occurred_at_us=unix_us()),)))
        return result

    def status(self) -> ServiceStatus:
        """Busy share of the device over the trailing window, as measured."""
        now_us = monotonic_us()
        problem = self._durability.problem
        state = "stopped" if self._stopping or problem else ("busy" if self.utilization.busy else "idle")
        return ServiceStatus(
            service="training",
            state=state,
            reason=problem.code if problem else None,
            busy_share=self.utilization.busy_share(now_us),
            window_s=self.utilization.window_us(now_us) / 1e6,
            queue_depth=self._queue.depth(),
            group_size_mean=self.utilization.group_size_mean(now_us),
        )

    async def _run_group(self, group: Group) -> None:
        leased_at_us = monotonic_us()
        members = [self._member(lease) for lease in group.leases]
        keys = [member.job.key for member in members]
        self._open_steps.update(keys)
        outcome = await self._compute(group.leases, members)
        record = record_step(outcome, leased_at_us=leased_at_us)
        for lease, member in zip(group.leases, members, strict=True):
            self._settle(lease, member, record.attribution.shares[member.partition_id])
        write = Write(entries=record.entries, changes=record.changes, queue=self._queue.dump())
        await self._written()
        due = [member.job for member in members if _checkpoint_is_due(member)]
        self._open_steps.update(job.key for job in due)  # a job that is being copied is not let go
        self._writing = asyncio.create_task(self._write(write, keys))
        for job in due:
            await self._saver.begin(job, self._writing)
            self._closed([job.key])

    async def _write(self, write: Write, keys: Sequence[str]) -> None:
        """Write one step down while the device is on the next one: at most two are in memory only."""
        await self._durability.write(write)
        self._closed(keys)

    def _closed(self, keys: Sequence[str]) -> None:
        self._open_steps.subtract(keys)
        self._queue.changed.notify()

    async def _written(self) -> None:
        """Return when every finished step is in the journal, in the order in which the steps ran."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    def _member(self, lease: LeasedJob) -> Member:
        job = self._mounted[lease.job.job_id]
        work = job.outstanding[lease.job.partition_id]
        if isinstance(job.slot, RlSlot):  # batches before it may have been dropped: it makes the next version
            work = replace(work, step=job.slot.step + 1)
        partition_id = lease.job.partition_id
        return Member(partition_id=partition_id, job=job, work=work, ahead=self._queue.read(partition_id))

    async def _compute(self, leases: Sequence[LeasedJob], members: Sequence[Member]) -> StepOutcome:
        """Run the step off the event loop, and keep its leases alive meanwhile."""
        self.utilization.begin(monotonic_us())
        future = asyncio.get_running_loop().run_in_executor(self.compute, self._step.run, members)
        self._queue.read_ahead()
        try:
            while not (await asyncio.wait({future}, timeout=self._renew_every_s))[0]:
                for lease in leases:
                    self._queue.renew(lease)
            return future.result()
        finally:
            self.utilization.end(monotonic_us(), len(members))

    def _settle(self, lease: LeasedJob, member: Member, share_us: int) -> None:
        reason = None if member.failure is None else member.failure.reason
        self._queue.settle(member.job, lease, charge_us=share_us, reason=reason)
        if member.failure is not None:
            self._fail(member.job, member.failure)

    def _fail(self, job: MountedJob, failure: Failure) -> None:
        """One tenant's fault ends that tenant's job; its workflow hears of it when the step is written down."""
        _log.warning("job %s failed: %s: %s", job.key, failure.reason, failure.message)
        job.failure = job.failure or failure
        self._queue.stop_job(job, reason=failure.reason)


def _checkpoint_is_due(member: Member) -> bool:
    trained = member.applied and member.work.purpose is Purpose.TRAIN
    return trained and member.work.step % member.job.checkpoint_every == 0 and not member.job.stopped
