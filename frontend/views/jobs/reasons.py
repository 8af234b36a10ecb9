"""What the list says beside a job's state: why it waits, how far it is and when it will end, why it stopped."""

from datetime import datetime, timedelta

from frontend.facts import step_word
from frontend.templatetags.console import duration
from jobs.models import Job
from jobs.selectors.line import QueuePlace
from jobs.states import JobState

SURE_AFTER = timedelta(seconds=20)  # a rate of fewer is a guess
SURE_STEPS = 3
_NEEDLESS = frozenset({"cancelled_by_user", "requeued_by_operator"})  # the state or the message says it


def reason_of(job: Job, place: QueuePlace | None, now: datetime) -> str:
    """One line; empty where the state says it all."""
    told = job.message or ("" if job.reason in _NEEDLESS else job.reason.replace("_", " "))
    match job.state:
        case JobState.QUEUED:
            where = f"Number {place.position:,} of {place.of:,}" if place else ""
            return ". ".join(part for part in (where, told or "Starts soon") if part)
        case JobState.STARTING:
            return told or "Mounting its slot"
        case JobState.RUNNING:
            return ", ".join(part for part in (_progress(job), _left(job, now)) if part)
        case JobState.CANCELLING:
            return told or "Waiting for the worker to confirm"
        case JobState.SUCCEEDED:
            return f"{job.step:,} {step_word(job.kind)}"
        case JobState.CANCELLED:
            return told or (f"At {_progress(job)}" if job.step else "Before it began")
    return told


def time_left(job: Job, now: datetime) -> timedelta | None:
    """What the rest takes if it goes on as it did since the job started; None where that is not known."""
    if job.started_at is None or job.step < SURE_STEPS or not job.step < job.total_steps:
        return None
    spent = now - job.started_at
    return spent * (job.total_steps - job.step) / job.step if spent >= SURE_AFTER else None


def _progress(job: Job) -> str:
    if not job.total_steps:
        return ""
    return f"{job.step:,} of {job.total_steps:,} {step_word(job.kind)}"


def _left(job: Job, now: datetime) -> str:
    left = time_left(job, now)
    return "" if left is None else f"about {duration(now, now + left)} left"
