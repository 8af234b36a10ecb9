"""The master: accepts attempts once, runs each one's workload to its end, and takes them up again after a restart."""

import asyncio
import logging
from collections import Counter
from concurrent.futures import Executor
from dataclasses import replace

from gpu_runtime.protocol.base import fingerprint
from gpu_runtime.protocol.messages import (
    TERMINAL_WORKLOAD_STATES,
    ArtifactPublished,
    LogWritten,
    StateChanged,
    StopJob,
    SubmitJob,
    WorkloadState,
    WorkloadStatus,
)
from gpu_runtime.protocol.wire import decode, encode
from gpu_runtime.services.admission import Admission
from gpu_runtime.services.drains import Drains
from gpu_runtime.services.errors import Conflict, Unavailable, Unknown
from gpu_runtime.services.mounting import Mounter
from gpu_runtime.services.runs import Run, failure_of, row_status, workload_key
from gpu_runtime.services.workload import CANCELLED, KEEP, SHUTDOWN, Workload
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.errors import StoreError
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.records import WorkloadRow, Write
from gpu_runtime.training.mounted import Failure
from gpu_runtime.training.queue import run_in

_log = logging.getLogger(__name__)
_CANCELLED = StopJob()


class Master:
    """Event loop only. A state is announced after it is durable."""

    def __init__(
        self,
        *,
        admission: Admission,
        journal: Journal,
        durability: Durability,
        mounter: Mounter,
        mounts: Executor,
        drains: Drains,
        max_jobs: int,
    ) -> None:
        self._admission = admission
        self._journal, self._durability = journal, durability
        self._mounter, self._mounts = mounter, mounts
        self._drains, self._max_jobs = drains, max_jobs
        self._runs: dict[str, Run] = {}
        self._waiting: list[Run] = []  # for a place, in order of arrival
        self._working: dict[str, Run] = {}  # those that have one
        self._accepting = asyncio.Lock()
        self._recovered = asyncio.Event()
        self._changed = drains.changed  # a place became free, or a service is given out again
        self._stopping = False

    @property
    def active_jobs(self) -> int:
        """Attempts that have not ended."""
        return len(self._runs)

    async def submit(self, submit: SubmitJob) -> WorkloadStatus:
        """Accept an attempt durably and start it; the same message again only answers.

        Raises Conflict (same key, other body), InvalidSubmit or Unavailable.
        """
        digest = fingerprint(submit.model_dump(mode="json"))
        await self._recovered.wait()
        async with self._accepting:
            row = await self._row(submit.job_id, submit.attempt)
            if row is not None:
                if row.digest != digest:
                    key = workload_key(submit.job_id, submit.attempt)
                    raise Conflict("conflict", f"{key} was accepted with another body", "job_id")
                return await self.status(submit.job_id, submit.attempt)
            self._admission.check(submit)
            run = await self._accept(submit, digest)
        self._start(run)
        return run.status

    async def status(self, job_id: str, attempt: int) -> WorkloadStatus:
        """Raises Unknown."""
        run = self._runs.get(workload_key(job_id, attempt))
        if run is not None:
            return run.status
        row = await self._row(job_id, attempt)
        if row is None:
            raise Unknown("unknown_workload", f"no attempt {attempt} of job {job_id!r}", "job_id")
        return row_status(row)

    def user_of(self, artifact_id: str) -> SubmitJob | None:
        """An attempt that has not ended and starts from an artifact, if there is one."""
        bound = ((run.submit, run.submit.policy) for run in self._runs.values())
        return next((submit for submit, policy in bound if policy and policy.artifact_id == artifact_id), None)

    def trained_on(self, version_id: str) -> SubmitJob | None:
        """An attempt that has not ended and is bound to a dataset version, if there is one."""
        bound = ((run.submit, run.submit.dataset) for run in self._runs.values())
        return next((submit for submit, dataset in bound if dataset and dataset.version_id == version_id), None)

    def is_live(self, job_id: str, attempt: int) -> bool:
        """Whether an attempt has not ended."""
        return workload_key(job_id, attempt) in self._runs

    async def cancel(self, job_id: str, attempt: int, stop: StopJob = _CANCELLED) -> WorkloadStatus:
        """Stop after the microbatch in progress, or where ``stop`` says. An attempt that has ended keeps its outcome.

        The first ask stands: a later one, whatever it says, only answers. Raises Unknown, or Unavailable when the
        cancel could not be made durable: it stops all the same, and the same request may be sent again.
        """
        await self._recovered.wait()
        run = self._runs.get(workload_key(job_id, attempt))
        if run is None or run.ending:
            return await self.status(job_id, attempt)
        if run.stop is None:
            run.stop = stop
            if run.workload is not None:
                run.workload.stop(_how(stop))
            self._changed.notify()
        async with run.cancelling:
            if not run.ending and run.enters(WorkloadState.CANCELLING):
                await self._write_now(run.stopping())
                run.state = WorkloadState.CANCELLING
        return await self.status(job_id, attempt)

    async def recover(self) -> None:
        """Take up every attempt that had not ended when the last process did. Requests wait for this."""
        rows = await run_in(None, self._journal.unfinished_workloads)
        submits = [decode(SubmitJob, row.submit) for row in rows]
        await run_in(None, self._mounter.sweep, submits)
        for row, submit in zip(rows, submits, strict=True):
            run = Run(submit=submit, state=row.state, step=row.step)
            run.resumed = row.state is not WorkloadState.ACCEPTED
            if row.state is WorkloadState.CANCELLING:
                run.stop = await run_in(None, self._journal.stop, row.job_id, row.attempt) or _CANCELLED
            self._start(run)
        self._recovered.set()

    async def save(self) -> None:
        """Make durable what every workload would go on from."""
        for run in list(self._runs.values()):
            if run.workload is not None:
                await run.workload.save()

    async def stop(self) -> None:
        """End every workload where it is; the attempts stay unfinished and are taken up at the next start."""
        self._stopping = True
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for run in self._runs.values():
            if run.workload is not None:
                run.workload.stop(SHUTDOWN)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, submit: SubmitJob, digest: str) -> Run:
        if (problem := self._durability.problem) is not None:
            raise Unavailable(problem.code, str(problem))
        run = Run(submit=submit, state=WorkloadState.ACCEPTED)
        row = WorkloadRow(
            job_id=submit.job_id,
            attempt=submit.attempt,
            tenant_id=submit.tenant_id,
            submit=encode(submit),
            digest=digest,
            state=run.state,
            total_steps=submit.spec.total_steps,
        )
        await run_in(None, self._mounter.forget, submit)
        changed = StateChanged(state=run.state, total_steps=row.total_steps)
        await self._write_now(Write(entries=(run.entry(changed),), accepted=row))
        return run

    def _start(self, run: Run) -> None:
        self._runs[run.key] = run
        run.task = asyncio.create_task(self._drive(run), name=f"workload {run.key}")

    async def _drive(self, run: Run) -> None:
        """From accepted to a terminal state; whatever goes wrong is this attempt's own failure."""
        try:
            await self._place(run)
            if run.resumed:
                await self._durability.write(Write(entries=(run.entry(_resumed(run)),)))
            if run.stop is None or run.keeps:
                await self._run(run)
            else:
                await self._finish(run, WorkloadState.CANCELLED, _end(run.stop))
        except Exception as error:
            _log.exception("workload %s", run.key)
            if self._stopping:  # it was interrupted: the next start takes it up
                return
            await self._finish(run, WorkloadState.FAILED, failure_of(error))
        finally:
            self._working.pop(run.key, None)
            self._changed.notify()

    async def _place(self, run: Run) -> None:
        """Wait for one of the ``max_jobs`` places; the next free one goes to the tenant that has the fewest."""
        self._waiting.append(run)
        try:
            while run.stop is None and (len(self._working) >= self._max_jobs or self._next() is not run):
                await self._changed.wait()
            self._working[run.key] = run
        finally:
            self._waiting.remove(run)
            self._changed.notify()

    def _next(self) -> Run | None:
        """What had begun before a restart goes on, whatever is drained."""
        places = Counter(run.submit.tenant_id for run in self._working.values())
        able = [run for run in self._waiting if run.resumed or not self._drains.hold(run.submit)]
        return min(able, key=lambda run: places[run.submit.tenant_id], default=None)

    async def _run(self, run: Run) -> None:
        await self._advance(run, WorkloadState.STARTING)
        run.workload = workload = await run_in(self._mounts, self._mounter.mount, run.submit, run.resumed)
        try:
            if workload.warnings:
                told = (LogWritten(level="warning", message=text) for text in workload.warnings)
                await self._durability.write(Write(entries=tuple(run.entry(warning) for warning in told)))
            await workload.start()
            if run.stop is not None:
                workload.stop(_how(run.stop))
            await self._advance(run, WorkloadState.RUNNING)
            await workload.run()
            if run.stop is None:
                artifacts = await workload.publish()
                await workload.close()
                await self._finish(run, WorkloadState.SUCCEEDED, None, *artifacts)
            else:
                end, artifacts = await self._leave(run.stop, workload)
                await workload.close()
                await self._finish(run, WorkloadState.CANCELLED, end, *artifacts)
        finally:
            await workload.close()

    async def _leave(self, stop: StopJob, workload: Workload) -> tuple[Failure, tuple[ArtifactPublished, ...]]:
        """How a stopped attempt ends, and what is kept of it. It ends as asked though nothing could be kept."""
        end = _end(stop)
        if not stop.keep:
            return end, ()
        try:
            return end, await workload.keep()
        except Exception as error:
            if self._stopping:  # the next start keeps it
                raise
            _log.exception("what a stopped attempt made is lost")
            text = f"{stop.message}; what was made could not be kept: {failure_of(error).message}"
            return replace(end, message=text), ()

    async def _advance(self, run: Run, state: WorkloadState) -> None:
        if run.enters(state) and run.stop is None:  # a cancel that is being written down must stay the last word
            await self._durability.write(run.transition(state))
            if run.enters(state):  # a cancel may have come in between
                run.state = state

    async def _finish(
        self, run: Run, state: WorkloadState, failure: Failure | None, *artifacts: ArtifactPublished
    ) -> None:
        assert state in TERMINAL_WORKLOAD_STATES
        run.ending = True
        await self._durability.write(run.transition(state, failure, *artifacts))
        try:
            await run_in(None, self._mounter.leave, run.submit)
        except Exception:  # it has ended all the same
            _log.exception("what workload %s left behind stays", run.key)
        self._runs.pop(run.key, None)

    async def _row(self, job_id: str, attempt: int) -> WorkloadRow | None:
        return await run_in(None, self._journal.workload, job_id, attempt)

    async def _write_now(self, write: Write) -> None:
        try:
            await self._durability.write_now(write)
        except StoreError as error:
            raise Unavailable(error.code, str(error)) from error


def _how(stop: StopJob) -> str:
    return KEEP if stop.keep else CANCELLED


def _end(stop: StopJob) -> Failure:
    return Failure(reason=stop.reason, message=stop.message)


def _resumed(run: Run) -> LogWritten:
    text = f"the runtime was restarted at step {run.step}; what was not yet durable is redone"
    return LogWritten(level="warning", message=text)
