"""An accepted attempt while it is alive in this process, and how its state is written down."""

import asyncio
from dataclasses import dataclass, field, replace

from gpu_runtime.protocol.messages import EventBody, StateChanged, StopJob, SubmitJob, WorkloadState, WorkloadStatus
from gpu_runtime.services.errors import Refused
from gpu_runtime.services.workload import Workload
from gpu_runtime.store.records import Entry, WorkloadChange, WorkloadRow, Write
from gpu_runtime.training.clock import unix_us
from gpu_runtime.training.mounted import Failure
from gpu_runtime.training.step import explain
from gpu_runtime.workflows.failures import EXPECTED, failure_from
from gpu_runtime.workflows.sft import WorkloadFailed

_ORDER = [WorkloadState.ACCEPTED, WorkloadState.STARTING, WorkloadState.RUNNING, WorkloadState.CANCELLING]


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One attempt. ``workload`` is None until it is mounted."""

    submit: SubmitJob
    state: WorkloadState
    step: int = 0
    workload: Workload | None = None
    resumed: bool = False  # taken up after a restart
    stop: StopJob | None = None  # how it was first asked to stop
    cancelling: asyncio.Lock = field(default_factory=asyncio.Lock)  # one cancel at a time is written down
    ending: bool = False  # its terminal state is being written down: nothing changes the outcome any more
    task: asyncio.Task[None] | None = None

    @property
    def key(self) -> str:
        return workload_key(self.submit.job_id, self.submit.attempt)

    @property
    def keeps(self) -> bool:
        """It was asked to stop and to keep what it made, and a process before this one had made something."""
        return self.stop is not None and self.stop.keep and self.step > 0

    @property
    def status(self) -> WorkloadStatus:
        """As of now; the step is the workload's."""
        return WorkloadStatus(
            job_id=self.submit.job_id,
            attempt=self.submit.attempt,
            state=self.state,
            step=max(self.step, self.workload.step if self.workload else 0),
            total_steps=self.submit.spec.total_steps,
        )

    def enters(self, state: WorkloadState) -> bool:
        """False when the state was reached before, e.g. by the process before a restart."""
        return _ORDER.index(state) > _ORDER.index(self.state)

    def entry(self, body: EventBody) -> Entry:
        """An event of this attempt, now."""
        submit = self.submit
        return Entry(
            body=body,
            occurred_at_us=unix_us(),
            job_id=submit.job_id,
            attempt=submit.attempt,
            tenant_id=submit.tenant_id,
        )

    def stopping(self) -> Write:
        """That it was asked to stop, and how; a restarted runtime knows it then."""
        assert self.stop is not None
        write = self.transition(WorkloadState.CANCELLING)
        return replace(write, changes=tuple(replace(change, stop=self.stop) for change in write.changes))

    def transition(self, state: WorkloadState, failure: Failure | None = None, *before: EventBody) -> Write:
        """One transaction: the events ``before``, the state change and the row."""
        reason = failure.reason if failure else None
        message = failure.message if failure else None
        status = self.status
        changed = StateChanged(
            state=state, reason=reason, message=message, step=status.step, total_steps=status.total_steps
        )
        change = WorkloadChange(
            job_id=status.job_id, attempt=status.attempt, state=state, reason=reason, message=message, step=status.step
        )
        return Write(entries=tuple(self.entry(body) for body in (*before, changed)), changes=(change,))


def workload_key(job_id: str, attempt: int) -> str:
    """The same name as in the training queue."""
    return f"{job_id}/{attempt}"


def row_status(row: WorkloadRow) -> WorkloadStatus:
    """Status of an attempt that is only in the journal."""
    return WorkloadStatus(
        job_id=row.job_id,
        attempt=row.attempt,
        state=row.state,
        reason=row.reason,
        message=row.message,
        step=row.step,
        total_steps=row.total_steps,
    )


def failure_of(error: Exception) -> Failure:
    """What ended a run."""
    if isinstance(error, WorkloadFailed):
        return error.failure
    if isinstance(error, Refused):  # allowed at submit, and no more: its dataset is gone
        return Failure(reason=error.body.code, message=error.body.message)
    if isinstance(error, EXPECTED):
        return failure_from(error)
    failure = explain(error)
    return Failure(reason="internal_error", message=failure.message) if failure.reason == "step_failed" else failure
