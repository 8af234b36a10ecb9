"""Every metric point there is, undecimated: for files that others work on."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from jobs.models import Job, MetricPoint
from jobs.selectors.jobs import job_get
from tenants.models import Tenant
from tenants.scope import tenant_scope

POINT_COLUMNS = ("attempt", "step", "series", "value", "occurred_at")
_NUMBERS_PER_QUERY = 1000  # one number holds all series of one step


def points_of(
    job_id: UUID,
    *,
    after: int,
    until: int,
    names: tuple[str, ...] = (),
    from_step: int | None = None,
    to_step: int | None = None,
) -> QuerySet[MetricPoint]:
    """Points of some curves within [from_step, to_step] and ``after < seq <= until``. Needs the tenant's scope."""
    points = MetricPoint.objects.filter(job_id=job_id, seq__gt=after, seq__lte=until)
    if names:
        points = points.filter(series__in=names)
    if from_step is not None:
        points = points.filter(step__gte=from_step)
    return points if to_step is None else points.filter(step__lte=to_step)


def point_rows(tenant: Tenant, job_id: UUID, *, after: int = 0, **wanted: Any) -> Iterator[tuple[Any, ...]]:
    """Rows of POINT_COLUMNS in the order they came; values that are not finite are nan, inf and -inf.

    ``wanted`` are the restrictions of ``points_of``. Raises the 404 before the first row. Reads a window of numbers at
    a time: no cursor stays open between rows.
    """
    return _rows(tenant, job_get(tenant, job_id), after, wanted)


def _rows(tenant: Tenant, job: Job, after: int, wanted: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for start in range(after, job.last_seq, _NUMBERS_PER_QUERY):
        with tenant_scope(tenant):
            until = min(start + _NUMBERS_PER_QUERY, job.last_seq)
            points = points_of(job.pk, after=start, until=until, **wanted).order_by("seq", "series")
            page = list(points.values_list("attempt", "step", "series", "value", "special", "occurred_at"))
        for attempt, step, series, value, special, occurred_at in page:
            told = float(special) if special else value
            yield attempt, step, series, told, occurred_at.isoformat().replace("+00:00", "Z")
