"""What the list says beside a job's state: why it waits, how far it is and when it will end, why it stopped."""

from datetime import timedelta

from frontend.facts import step_word
from frontend.templatetags.console import span
from jobs.models import Job
from jobs.selectors.line import QueuePlace
from jobs.states import JobState

_NEEDLESS = frozenset({"cancelled_by_user", "requeued_by_operator"})  # the state or the message says it


def reason_of(job: Job, place: QueuePlace | None, left: timedelta | None) -> str:
    """One line; empty where the state says it all. ``left``: of a running job, None while nobody can know."""
    told = job.message or ("" if job.reason in _NEEDLESS else job.reason.replace("_", " "))
    match job.state:
        case JobState.QUEUED:
            where = f"Number {place.position:,} of {place.of:,}" if place else ""
            return ". ".join(part for part in (where, told or "Starts soon") if part)
        case JobState.STARTING:
            return told or "Mounting its slot"
        case JobState.RUNNING:
            return ", ".join(
                part for part in (_progress(job), "" if left is None else f"about {span(left)} left") if part
            )
        case JobState.CANCELLING:
            return told or "Waiting for the worker to confirm"
        case JobState.SUCCEEDED:
            return f"{job.step:,} {step_word(job.kind)}"
        case JobState.CANCELLED:
            return told or (f"At {_progress(job)}" if job.step else "Before it began")
    return told


def _progress(job: Job) -> str:
    if not job.total_steps:
        return ""
    return f"{job.step:,} of {job.total_steps:,} {step_word(job.kind)}"
