"""The one way a job changes state: a conditional UPDATE that checks exactly one row, and the row of its stream."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from jobs import notify
from jobs.models import Job, JobEvent
from jobs.services.outbox import DISPATCH_TENANT, outbox_add
from jobs.services.webhooks import job_webhook
from jobs.states import REOPENED, TERMINAL, JobState, may_become
from tenants.billing.ledger.holds import hold_release
from tenants.scope import platform_scope

REASON_MAX, MESSAGE_MAX = 100, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A step that happened: the stream row that tells of it."""

    job_id: UUID
    state: JobState
    seq: int


def seq_reserve(job_id: UUID, count: int = 1) -> int | None:
    """Take ``count`` numbers of a job's stream and return the first; None if there is no such job.

    The UPDATE locks the job's row until the transaction ends, so numbers become visible in their order: a reader
    that saw row n never finds a smaller one later.
    """
    if not Job.objects.filter(pk=job_id).update(last_seq=F("last_seq") + count):
        return None
    return Job.objects.values_list("last_seq", flat=True).get(pk=job_id) - count + 1


@transaction.atomic
def job_transition(
    job: Job,
    *,
    to: JobState,
    sources: frozenset[JobState] = frozenset(JobState),
    reason: str = "",
    message: str = "",
    occurred_at: datetime | None = None,
    seq: int | None = None,
    release_hold: bool = True,
    **columns: Any,
) -> Transition | None:
    """Move a job to ``to`` if the table allows it from where the row is now, and from one of ``sources``.

    Fenced by ``job.attempt``: if another attempt has begun since the caller read the row, nothing happens.
    None means refused: somebody else was faster, and the row says who. ``seq`` is a number already reserved.
    A job that ends gives back what is left of its hold, at once, unless the caller has its last usage still to book.
    """
    moment = occurred_at or timezone.now()
    columns |= {"state": to, "reason": reason[:REASON_MAX], "message": message[:MESSAGE_MAX]}
    columns |= _moments(to, moment)
    with platform_scope():
        allowed = [state for state in sources if may_become(state, to)]
        row = Job.objects.filter(pk=job.pk, tenant_id=job.tenant_id, attempt=job.attempt, state__in=allowed)
        if row.update(**columns) != 1:
            return None
        job.refresh_from_db()
        job_webhook(job)
        if to in TERMINAL:
            if release_hold:
                hold_release(job_id=job.pk)
            outbox_add(topic=DISPATCH_TENANT, key=str(job.tenant_id))  # whoever waited for its place
        return _told(job, seq=seq, occurred_at=moment)


@transaction.atomic
def job_reopen(job: Job, *, reason: str, message: str) -> Transition | None:
    """The one way back from an end: queued again, its attempts so far forgiven. Fenced like a transition."""
    with platform_scope():
        ended = Job.objects.filter(pk=job.pk, tenant_id=job.tenant_id, attempt=job.attempt, state__in=REOPENED)
        columns = {"state": JobState.QUEUED, "reason": reason, "message": message, "finished_at": None}
        columns["archived_at"] = None  # a live job is listed
        if ended.update(attempts_forgiven=F("attempt"), **columns) != 1:
            return None
        job.refresh_from_db()
        return _told(job, seq=None, occurred_at=timezone.now())


def job_note(job: Job, *, reason: str, message: str) -> Transition | None:
    """Say why a job is still in its state (a queued job that waits, for example). Nothing if it says so already."""
    reason, message = reason[:REASON_MAX], message[:MESSAGE_MAX]
    if (job.reason, job.message) == (reason, message):
        return None
    with platform_scope(), transaction.atomic():
        row = Job.objects.filter(pk=job.pk, tenant_id=job.tenant_id, state=job.state, attempt=job.attempt)
        if row.exclude(reason=reason, message=message).update(reason=reason, message=message) != 1:
            return None
        job.refresh_from_db()
        return _told(job, seq=None, occurred_at=timezone.now())


def job_told(job: Job, *, occurred_at: datetime) -> Transition:
    """The first row of a new job's stream."""
    return _told(job, seq=None, occurred_at=occurred_at)


@transaction.atomic
def job_log(job: Job, *, level: str, message: str) -> None:
    """A line of the platform itself in the job's stream, whatever state the job is in."""
    with platform_scope():
        seq = _next_seq(job)
        JobEvent.objects.create(
            tenant_id=job.tenant_id,
            job_id=job.pk,
            seq=seq,
            attempt=job.attempt,
            type="log",
            data={"level": level, "message": message},
            occurred_at=timezone.now(),
        )


def _moments(to: JobState, moment: datetime) -> dict[str, Any]:
    if to == JobState.RUNNING:
        return {"started_at": Coalesce(F("started_at"), Value(moment)), "lease_until": None}
    if to in TERMINAL:
        return {"finished_at": moment, "lease_until": None}
    return {}


def _told(job: Job, *, seq: int | None, occurred_at: datetime) -> Transition:
    if seq is None:
        seq = _next_seq(job)
    JobEvent.objects.create(
        tenant_id=job.tenant_id,
        job_id=job.pk,
        seq=seq,
        attempt=job.attempt,
        type="state",
        data={"state": str(job.state), "reason": job.reason, "message": job.message},
        occurred_at=occurred_at,
    )
    return Transition(job_id=job.pk, state=JobState(job.state), seq=seq)


def _next_seq(job: Job) -> int:
    """The next number of the job's stream; its readers are woken once it is committed."""
    seq = seq_reserve(job.pk)
    assert seq is not None
    job.last_seq = seq
    tenant_id, job_id = job.tenant_id, job.pk
    transaction.on_commit(lambda: notify.wake({(tenant_id, job_id): seq}), robust=True)
    return seq
