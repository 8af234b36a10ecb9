"""How fast running jobs go and spend at the moment, from their newest rows: a fixed, small number of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Subquery

from jobs.models import Job, JobEvent, MetricPoint
from tenants.billing.models import UsageEvent
from tenants.models import Tenant
from tenants.scope import tenant_scope

_ROWS = 200  # numbers of the stream, or usage events, that the present is judged by


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Steps done within the last ``seconds`` that were looked at."""

    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """Money spent within the last ``seconds`` that were looked at."""

    amount: Decimal
    seconds: float


def recent_paces(tenant: Tenant, jobs: Sequence[Job], *, now: datetime) -> dict[UUID, Pace]:
    """Of the present attempt of each job; those without two steps of it are left out. One query for any number.

    Silence longer than a usual step counts as slowness.
    """
    with tenant_scope(tenant):
        ends = list(_window_ends([job.pk for job in jobs]))
    paces = {pk: pace_between(*four, now=now) for pk, *four in ends if None not in four}
    return {pk: pace for pk, pace in paces.items() if pace is not None}


def _window_ends(job_ids: Sequence[UUID]) -> Iterable[tuple[Any, ...]]:
    """(job, step and moment of the first and of the newest point looked at), by the index of (job, seq)."""
    own = MetricPoint.objects.filter(job=OuterRef("pk"), attempt=OuterRef("attempt"))
    newest = own.order_by("-seq")
    jobs = Job.objects.filter(pk__in=job_ids).order_by().annotate(newest_seq=Subquery(newest.values("seq")[:1]))
    first = own.filter(seq__gt=OuterRef("newest_seq") - _ROWS).order_by("seq")
    columns = {
        f"{end}_{name}": Subquery(points.values(name)[:1])
        for end, points in (("first", first), ("last", newest))
        for name in ("step", "occurred_at")
    }
    return jobs.annotate(**columns).values_list("pk", *columns)


def pace_between(step: int, at: datetime, newest_step: int, newest_at: datetime, *, now: datetime) -> Pace | None:
    """Of two moments of one attempt; ``now`` matters once the next step is later than the last ones were."""
    steps, seconds = newest_step - step, (newest_at - at).total_seconds()
    if steps <= 0 or seconds <= 0:
        return None
    overdue_s = (now - newest_at).total_seconds() - seconds / steps
    return Pace(steps=steps, seconds=seconds + max(overdue_s, 0.0))


def recent_burn(tenant: Tenant, job_id: UUID, *, now: datetime) -> Burn | None:
    """None until there are two moments of usage."""
    with tenant_scope(tenant):
        usage = UsageEvent.objects.filter(tenant=tenant, job_id=job_id).order_by("-pk")
        rows = list(usage.values_list("occurred_at", "rated__amount")[:_ROWS])
    return burn_of([(at, amount or Decimal(0)) for at, amount in rows], now=now)


def burn_of(rows: Sequence[tuple[datetime, Decimal]], *, now: datetime) -> Burn | None:
    """What was spent after the first of some moments. As with the pace, unusual silence counts as time."""
    moments = sorted({at for at, _ in rows})
    if len(moments) < 2:
        return None
    first, newest = moments[0], moments[-1]
    seconds = (newest - first).total_seconds()
    overdue_s = (now - newest).total_seconds() - seconds / (len(moments) - 1)
    amount = sum((amount for at, amount in rows if at > first), Decimal(0))
    return Burn(amount=amount, seconds=seconds + max(overdue_s, 0.0))


def state_changes(tenant: Tenant, job_id: UUID) -> list[tuple[str, datetime]]:
    """Every (state, moment) of the job's stream, in order; a note repeats the state it is about."""
    with tenant_scope(tenant):
        rows = JobEvent.objects.filter(job_id=job_id, type="state").order_by("seq")
        return [(str(data.get("state", "")), at) for data, at in rows.values_list("data", "occurred_at")]
