"""Slots made durable beside the device: copied between two steps, written down while the next ones run."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Executor

from gpu_runtime.protocol.messages import PolicyVersionPublished
from gpu_runtime.services.checkpoints import Checkpoints, SlotCopy
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.records import Entry, Write
from gpu_runtime.training.clock import unix_us
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.queue import run_in

COPIES_MAX = 2  # slots in memory twice; a checkpoint that is due while so many wait for the disk waits too


class Saver:
    """Event loop only. Versions of one job become durable, and are published, in their order."""

    def __init__(
        self,
        *,
        checkpoints: Checkpoints,
        durability: Durability,
        compute: Executor,
        files: Executor | None,
        ended: Callable[[], None],
    ) -> None:
        """``compute``: the thread that trains; ``files``: whoever waits for the disk, None: the event loop's own.

        ``ended`` is called after each write beside the device: time to ``check``.
        """
        self._checkpoints, self._durability = checkpoints, durability
        self._compute, self._files, self._tell_ended = compute, files, ended
        self._pending: dict[str, asyncio.Task[None]] = {}  # by job
        self._at_once = asyncio.Lock()
        self._error: BaseException | None = None

    async def begin(self, job: MountedJob, written: asyncio.Task[None]) -> None:
        """Return when the slot is copied as it stands. Its files follow, once ``written`` says that the journal knows
        every step that is in it."""
        while job.key in self._pending or len(self._pending) >= COPIES_MAX:
            await asyncio.wait(self._pending.values(), return_when=asyncio.FIRST_COMPLETED)
        copy = await run_in(self._compute, self._checkpoints.copy, job)
        task = asyncio.create_task(self._follow(job, copy, written), name=f"checkpoint of {job.key}")
        self._pending[job.key] = task
        task.add_done_callback(functools.partial(self._ended, job.key))

    async def save(self, job: MountedJob, *, busy: Callable[[], bool]) -> None:
        """Return when the slot is durable as it stands; at once if it is, or while steps of it are ``busy``."""
        async with self._at_once:
            await self.settled(job)
            if job.saved_step == job.slot.step or busy():
                return
            await self._write(job, await run_in(self._compute, self._checkpoints.copy, job))

    async def publish(self, job: MountedJob, version: PolicyVersionPublished | None = None) -> None:
        """Tell of a durable version; None: of the one that the slot is at."""
        if version is None:
            version = await run_in(self._files, self._checkpoints.describe, job)
        entry = Entry(
            body=version, occurred_at_us=unix_us(), job_id=job.job_id, attempt=job.attempt, tenant_id=job.tenant_id
        )
        await self._durability.write(Write(entries=(entry,)))

    async def settled(self, job: MountedJob) -> None:
        """Return when nothing of this job is on its way to the disk."""
        while (task := self._pending.get(job.key)) is not None:
            await asyncio.wait({task})

    async def finish(self) -> None:
        """Return when nothing is on its way to the disk; raises what a write failed of."""
        while self._pending:
            await asyncio.wait(self._pending.values())
        self.check()

    def check(self) -> None:
        """Raise what a write failed of; trouble of the storage is no failure, it is waited for."""
        if self._error is not None:
            raise self._error

    async def _follow(self, job: MountedJob, copy: SlotCopy, written: asyncio.Task[None]) -> None:
        await asyncio.shield(written)
        await self._write(job, copy)

    async def _write(self, job: MountedJob, copy: SlotCopy) -> None:
        version = await self._durability.persist(functools.partial(self._checkpoints.write, copy), self._files)
        job.saved_step = version.step
        await self.publish(job, version)

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        del self._pending[key]
        if not task.cancelled() and self._error is None:
            self._error = task.exception()
        self._tell_ended()
