"""A job's stream after a cursor: events and metric points share one sequence, visible in its order."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jobs.models import ArtifactKind, Job, JobEvent, MetricPoint
from jobs.selectors.jobs import job_get
from tenants.models import Tenant
from tenants.scope import tenant_scope

_POINT_NAMES = ("seq", "attempt", "series", "step", "value", "special")
_SPAN = 250  # numbers per page; one number holds one event or all series of one step


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPage:
    """Everything with ``after < number <= seq``; ask again with ``after=seq``. ``more`` if that is not all."""

    events: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    job: Job
    seq: int
    more: bool


def stream_page(tenant: Tenant, job_id: UUID, *, after: int) -> StreamPage:
    """The next page of a job's stream.

    The job's counter is read first and only rows up to it are told: what a transaction under way writes has
    larger numbers, so no reader ever skips a row.
    """
    with tenant_scope(tenant):
        job = job_get(tenant, job_id)
        after = min(after, job.last_seq)
        seq = min(after + _SPAN, job.last_seq)
        if seq == after:  # a reader that polls and has everything
            return StreamPage(events=[], metrics=[], job=job, seq=seq, more=False)
        window = {"job_id": job.pk, "seq__gt": after, "seq__lte": seq}
        events = [event_row(event) for event in JobEvent.objects.filter(**window).order_by("seq")]
        points = MetricPoint.objects.filter(**window).order_by("seq", "series")
        metrics = [_point_row(point) for point in points.values(*_POINT_NAMES, "occurred_at")]
        return StreamPage(events=events, metrics=metrics, job=job, seq=seq, more=seq < job.last_seq)


def _point_row(point: dict[str, Any]) -> dict[str, Any]:
    """``time`` is in seconds since 1970, as in the columns of curves."""
    return {**{name: point[name] for name in _POINT_NAMES}, "time": round(point["occurred_at"].timestamp(), 3)}


def event_page(tenant: Tenant, job_id: UUID, *, after: int, limit: int) -> StreamPage:
    """Up to ``limit`` events after a cursor, without metric points."""
    with tenant_scope(tenant):
        job = job_get(tenant, job_id)
        rows = JobEvent.objects.filter(job_id=job.pk, seq__gt=after, seq__lte=job.last_seq).order_by("seq")
        events = [event_row(event) for event in rows[: limit + 1]]
    more = len(events) > limit
    events = events[:limit]
    seq = events[-1]["seq"] if more else max(after, job.last_seq)
    return StreamPage(events=events, metrics=[], job=job, seq=seq, more=more)


def newest_seq(tenant: Tenant, job_id: UUID) -> int:
    """The cheapest question of a waiting reader: is there anything new?"""
    with tenant_scope(tenant):
        return Job.objects.filter(pk=job_id).values_list("last_seq", flat=True).first() or 0


def event_row(event: JobEvent) -> dict[str, Any]:
    """One event as pages, sockets and the API show it."""
    return {
        "seq": event.seq,
        "attempt": event.attempt,
        "type": event.type,
        "data": event.data,
        "occurred_at": event.occurred_at.isoformat().replace("+00:00", "Z"),
    }


def notable_events(tenant: Tenant, job_id: UUID, *, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """The newest events, or those before a number, newest first: changes of state, versions, files, warnings.

    Films are left out, as are usual lines of the log: they are many, and would push out everything else.
    """
    with tenant_scope(tenant):
        events = JobEvent.objects.filter(job_id=job_get(tenant, job_id).pk)
        told = events.exclude(type="artifact", data__kind=ArtifactKind.VIDEO).exclude(type="log", data__level="info")
        if before is not None:
            told = told.filter(seq__lt=before)
        return [event_row(event) for event in told.order_by("-seq")[:limit]]
