"""How much of each limit is used now: read from the rows themselves, never from counters that may drift."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from uuid import UUID

from django.db.models import Q, Sum
from django.utils import timezone

from tenants.billing.models import COMPUTE_METERS, UsageRollup
from tenants.billing.usage.periods import month_after, month_of
from tenants.datasets.models import Upload, UploadState
from tenants.models import Tenant
from tenants.quotas.models import Resource
from tenants.quotas.storage import storage_of
from tenants.scope import tenant_scope

US_PER_S = 1_000_000
Used = dict[UUID | None, dict[Resource, int]]
"""Project (None: the whole tenant) -> resource -> how much, in the resource's unit."""

_job_counts: list[Callable[[Tenant], Used]] = []


def count_jobs_with(counts: Callable[[Tenant], Used]) -> None:
    """Name who counts jobs by project; the app of jobs does so once, when it is ready."""
    if counts not in _job_counts:
        _job_counts.append(counts)


def used_of(tenant: Tenant) -> Used:
    """Everything that is held, and what this month (UTC) has used so far. Requests and single jobs are not in it.

    Money and seconds are rounded down to whole units, as limits are; the exact figures are in the usage.
    """
    used: Used = {None: {}}
    for counts in _job_counts:
        for project_id, figures in counts(tenant).items():
            _add(used, project_id, figures)
    for project_id, figures in month_used(tenant, month_of(timezone.now())).items():
        _add(used, project_id, figures)
    stored = storage_of(tenant)
    used[None][Resource.STORAGE_BYTES] = stored.used_bytes + stored.reserved_bytes
    with tenant_scope(tenant):
        used[None][Resource.UPLOADS] = Upload.objects.filter(state=UploadState.RECEIVING).count()
    return used


def _add(used: Used, project_id: UUID | None, figures: dict[Resource, int]) -> None:
    used.setdefault(project_id, {}).update(figures)


def month_used(tenant: Tenant, month: date) -> Used:
    """Seconds and money of the month by project, and of the whole tenant; one query."""
    with tenant_scope(tenant):
        rows = list(
            UsageRollup.objects.filter(day__gte=month, day__lt=month_after(month))
            .values("project_id")
            .annotate(money=Sum("amount"), time_us=Sum("quantity", filter=Q(meter__in=COMPUTE_METERS, reason="")))
            .order_by("project_id")
        )
    total_us = sum(int(row["time_us"] or 0) for row in rows)
    total = sum((row["money"] or Decimal(0) for row in rows), Decimal(0))
    used: Used = {
        row["project_id"]: _figures(int(row["time_us"] or 0), row["money"] or Decimal(0))
        for row in rows
        if row["project_id"] is not None
    }
    return used | {None: _figures(total_us, total)}


def _figures(time_us: int, money: Decimal) -> dict[Resource, int]:
    return {Resource.COMPUTE_S_PER_MONTH: time_us // US_PER_S, Resource.MONEY_PER_MONTH: int(money)}
