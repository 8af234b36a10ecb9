"""Book-keeping of attempts. Their rows follow the runtime; a row given up by us (fenced) or ended never changes."""

from uuid import UUID

from django.utils import timezone

from jobs.models import Job, JobAttempt
from jobs.states import ATTEMPT_TERMINAL, AttemptState
from tenants.scope import platform_scope


def attempt_close(job: Job, state: AttemptState, *, reason: str) -> None:
    """Give up the job's present attempt: from here on its effects are refused."""
    attempt_follow(job.pk, job.attempt, state, reason=reason)


def attempt_follow(job_id: UUID, number: int, state: AttemptState, *, reason: str = "") -> bool:
    """Move an open attempt to ``state``; False if it has ended already. Never back from running to accepted."""
    with platform_scope():
        row = JobAttempt.objects.filter(job_id=job_id, number=number).exclude(state__in=ATTEMPT_TERMINAL)
        if state == AttemptState.ACCEPTED:
            row = row.exclude(state=AttemptState.RUNNING)
        finished_at = timezone.now() if state in ATTEMPT_TERMINAL else None
        return row.update(state=state, reason=reason[:100], finished_at=finished_at) == 1


def attempt_adopt(job_id: UUID, number: int, *, journal_id: str) -> None:
    """Note which journal holds an attempt, once that runtime has said that it does."""
    with platform_scope():
        JobAttempt.objects.filter(job_id=job_id, number=number).update(journal_id=journal_id)
