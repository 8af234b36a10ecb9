"""Metric series for charts: equal-step buckets that keep last, minimum and maximum.

Extremes are never dropped, and a value that is not finite is flagged, so a decimated curve hides no accident.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Min, QuerySet

from jobs.buckets import Bucket, bucket_of, by_width, width_for
from jobs.models import Job, MetricPoint
from jobs.selectors.buckets import Series, curves_read, series_of
from jobs.selectors.jobs import job_get
from jobs.selectors.points import points_of
from jobs.selectors.stream import newest_seq
from tenants.models import Tenant
from tenants.scope import tenant_scope

POINTS_DEFAULT, POINTS_MAX = 500, 2000
_TRIES = 3

__all__ = ["POINTS_DEFAULT", "POINTS_MAX", "Series", "SeriesPage", "series_read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPage:
    """Every point up to ``seq``; ask again with ``after=seq`` for newer ones."""

    seq: int
    series: list[Series]


def series_read(
    tenant: Tenant,
    job_id: UUID,
    *,
    after: int = 0,
    names: tuple[str, ...] = (),
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int = POINTS_DEFAULT,
) -> SeriesPage:
    """The job's curves within [from_step, to_step], each of at most ``max_points`` buckets.

    Buckets do not know sequence numbers, so they are read again if the job was told more meanwhile. Of a job that
    never pauses for as long as a reading takes, the answer may then hold a few points that are newer than ``seq``.
    """
    wanted: dict[str, Any] = {"names": names, "from_step": from_step, "to_step": to_step}
    with tenant_scope(tenant):
        job = job_get(tenant, job_id)
        seq = job.last_seq
        if after:
            return SeriesPage(seq=max(after, seq), series=_newer(job, after, max_points, wanted))
        for _ in range(_TRIES):
            series = curves_read(job.pk, max_points=max_points, **wanted)
            known, seq = seq, newest_seq(tenant, job_id)
            if known == seq:
                break
        return SeriesPage(seq=known, series=series)


def _newer(job: Job, after: int, max_points: int, wanted: dict[str, Any]) -> list[Series]:
    """Curves of the points that came after a number."""
    points = points_of(job.pk, after=after, until=job.last_seq, **wanted)
    found = points.values("series", "attempt").annotate(total=Count("pk"), low=Min("step"), high=Max("step"))
    series = []
    for curve in found.order_by("series", "attempt"):
        width = 1 if curve["total"] <= max_points else width_for(curve["low"], curve["high"], most=max_points)
        own = points.filter(series=curve["series"], attempt=curve["attempt"])
        series.append(series_of(curve["series"], curve["attempt"], by_width(_each(own), width), width))
    return series


def _each(points: QuerySet[MetricPoint]) -> list[Bucket]:
    return [bucket_of(*columns) for columns in points.values_list("step", "occurred_at", "value", "special")]
