"""Metric series for charts, decimated in the database: equal-step buckets that keep last, minimum and maximum.

Extremes are never dropped, and a value that is not finite is flagged, so a decimated curve hides no accident.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import BigIntegerField, Count, Max, Min, Q, QuerySet
from django.db.models.functions import Cast

from jobs.models import MetricPoint
from jobs.selectors.jobs import job_get
from jobs.selectors.points import points_of
from tenants.models import Tenant
from tenants.scope import tenant_scope

POINTS_DEFAULT, POINTS_MAX = 500, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve of one attempt, column by column: ``shown`` buckets of ``total`` points.

    ``last[i]`` is the value at ``step[i]``, ``min[i]``/``max[i]`` span the bucket; null where nothing is finite.
    ``special[i]`` is "nan", "inf" or "-inf" if the bucket holds such a value, else null.
    """

    name: str
    attempt: int
    total: int
    shown: int
    step: list[int]
    last: list[float | None]
    min: list[float | None]
    max: list[float | None]
    special: list[str | None]


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
    """The job's curves within [from_step, to_step], each of at most ``max_points`` buckets."""
    with tenant_scope(tenant):
        job = job_get(tenant, job_id)
        points = points_of(job.pk, after=after, until=job.last_seq, names=names, from_step=from_step, to_step=to_step)
        curves = points.values("series", "attempt").annotate(total=Count("pk"), low=Min("step"), high=Max("step"))
        return SeriesPage(
            seq=max(after, job.last_seq),
            series=[_curve(points, curve, max_points) for curve in curves.order_by("series", "attempt")],
        )


def _curve(points: QuerySet[MetricPoint], curve: Mapping[str, Any], max_points: int) -> Series:
    low, high = curve["low"], curve["high"]
    width = -(-(high - low + 1) // max_points)
    own = points.filter(series=curve["series"], attempt=curve["attempt"])
    buckets = list(
        own.annotate(bucket=(Cast("step", BigIntegerField()) - low) / width)
        .values("bucket")
        .annotate(
            last_step=Max("step"),
            low=Min("value"),
            high=Max("value"),
            flag=Max("special", filter=~Q(special="")),
        )
        .order_by("bucket")
    )
    value_at = dict(own.filter(step__in=[row["last_step"] for row in buckets]).values_list("step", "value"))
    return Series(
        name=curve["series"],
        attempt=curve["attempt"],
        total=curve["total"],
        shown=len(buckets),
        step=[row["last_step"] for row in buckets],
        last=[value_at[row["last_step"]] for row in buckets],
        min=[row["low"] for row in buckets],
        max=[row["high"] for row in buckets],
        special=[row["flag"] for row in buckets],
    )
