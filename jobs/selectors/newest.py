"""The newest value of some curves of several jobs: what a line of a list says of each."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import OuterRef, Subquery
from django.db.models.functions import Coalesce

from jobs.models import Job, MetricPoint
from tenants.models import Tenant
from tenants.scope import tenant_scope


def newest_values(tenant: Tenant, jobs: Sequence[Job], series: Sequence[str]) -> dict[UUID, dict[str, float]]:
    """By job and series, of the newest attempt or of the one before; what was never told is left out. One query.

    Each value is one look-up in the index of (job, attempt, series, step): no curve is read, however long it is.
    """
    with tenant_scope(tenant):
        columns = {f"value_{index}": _newest(name) for index, name in enumerate(series)}
        rows = Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by().annotate(**columns)
        return {
            pk: {name: value for name, value in zip(series, values, strict=True) if value is not None}
            for pk, *values in rows.values_list("pk", *columns)
        }


def _newest(series: str) -> Coalesce:
    """A new attempt goes on where the one before stopped: until it tells something, that one's figure holds."""
    return Coalesce(_of_attempt(series, 0), _of_attempt(series, 1))


def _of_attempt(series: str, back: int) -> Subquery:
    points = MetricPoint.objects.filter(
        job=OuterRef("pk"), attempt=OuterRef("attempt") - back, series=series, value__isnull=False
    )
    return Subquery(points.order_by("-step").values("value")[:1])
