"""The states of a job and the only ways between them. One table; services, pages and tests read it."""

from enum import StrEnum


class JobState(StrEnum):
    """What became of a job, as its tenant sees it."""

    QUEUED = "queued"  # admitted and durable; waits for dispatch
    STARTING = "starting"  # an attempt is claimed, the runtime mounts its slot
    RUNNING = "running"  # the runtime reports steps
    CANCELLING = "cancelling"  # cancel asked; true until the runtime confirms
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
LIVE = frozenset(JobState) - TERMINAL

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.CANCELLED, JobState.FAILED}),
    # Back to queued when the runtime that held the attempt lost it: the next attempt starts.
    JobState.STARTING: frozenset(
        {JobState.RUNNING, JobState.QUEUED, JobState.CANCELLING, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.QUEUED, JobState.CANCELLING, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    ),
    # A job may finish before the cancellation reaches it: that outcome stands.
    JobState.CANCELLING: frozenset({JobState.CANCELLED, JobState.SUCCEEDED, JobState.FAILED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


def may_become(old: JobState, new: JobState) -> bool:
    """True if the table allows the step."""
    return new in TRANSITIONS[old]
