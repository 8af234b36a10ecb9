"""The states of a job and of its attempts, and the only ways between them. Services, pages and tests read it."""

from enum import StrEnum

from gpu_runtime.protocol.messages import WorkloadState


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
        {
            JobState.RUNNING,
            JobState.QUEUED,
            JobState.CANCELLING,
            JobState.SUCCEEDED,
            JobState.FAILED,
            JobState.CANCELLED,
        }
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
REOPENED = frozenset({JobState.FAILED, JobState.CANCELLED})
"""Ends from which an operator, and nobody else, has a job run again (`jobs.services.requeue`)."""


def may_become(old: JobState, new: JobState) -> bool:
    """True if the table allows the step."""
    return new in TRANSITIONS[old]


class AttemptState(StrEnum):
    """What became of one hand-over to the runtime."""

    DISPATCHING = "dispatching"  # claimed; the runtime may or may not know it yet
    ACCEPTED = "accepted"  # durable in the runtime's journal
    RUNNING = "running"  # the runtime reports steps
    UNDELIVERED = "undelivered"  # never reached the runtime: certain
    REFUSED = "refused"  # the runtime answered no
    LOST = "lost"  # the runtime that held it no longer knows it
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ATTEMPT_TERMINAL = frozenset(AttemptState) - {AttemptState.DISPATCHING, AttemptState.ACCEPTED, AttemptState.RUNNING}
ATTEMPT_FENCED = frozenset({AttemptState.UNDELIVERED, AttemptState.REFUSED, AttemptState.LOST})
"""Given up by the control plane: whatever such an attempt still reports has no effect on its job."""

JOB_STATE_OF_WORKLOAD: dict[WorkloadState, JobState] = {
    WorkloadState.ACCEPTED: JobState.STARTING,
    WorkloadState.STARTING: JobState.STARTING,
    WorkloadState.RUNNING: JobState.RUNNING,
    WorkloadState.CANCELLING: JobState.CANCELLING,
    WorkloadState.SUCCEEDED: JobState.SUCCEEDED,
    WorkloadState.FAILED: JobState.FAILED,
    WorkloadState.CANCELLED: JobState.CANCELLED,
}

ATTEMPT_STATE_OF_WORKLOAD: dict[WorkloadState, AttemptState] = {
    WorkloadState.ACCEPTED: AttemptState.ACCEPTED,
    WorkloadState.STARTING: AttemptState.ACCEPTED,
    WorkloadState.RUNNING: AttemptState.RUNNING,
    WorkloadState.CANCELLING: AttemptState.RUNNING,
    WorkloadState.SUCCEEDED: AttemptState.SUCCEEDED,
    WorkloadState.FAILED: AttemptState.FAILED,
    WorkloadState.CANCELLED: AttemptState.CANCELLED,
}
