"""Reading the bill, from running sums. Exact: quantities are integers, money is Decimal.

A month or a day is that in which usage happened (UTC), whichever invoice it is on.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from django.db.models import Q, QuerySet, Sum

from tenants.billing.models import COMPUTE_METERS, Meter, UsageEvent, UsageRollup
from tenants.billing.usage.costs import Cost, CostLine, Free, UsageTotal, cost_of, lines_of, total_of
from tenants.billing.usage.periods import month_after
from tenants.models import ApiKey, Project, Tenant
from tenants.scope import platform_scope, tenant_scope

__all__ = [
    "Cost",
    "CostLine",
    "Free",
    "GroupBy",
    "Spending",
    "UsageFilter",
    "UsageTotal",
    "job_cost",
    "job_costs",
    "metered_us",
    "spending_of",
    "spent",
    "spent_of_job",
    "spent_of_key",
    "tenant_cost",
    "tenant_total",
    "usage_totals",
]

GroupBy = Literal["meter", "job", "day", "project", "key"]
_COLUMN: dict[GroupBy, str] = {
    "meter": "meter",
    "job": "job_id",
    "day": "day",
    "project": "project_id",
    "key": "key_id",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Which usage: within [since, until) days, of one job, project, key or meter. None: of all."""

    since: date | None = None
    until: date | None = None
    job_id: UUID | None = None
    project_id: UUID | None = None
    key_id: UUID | None = None
    meter: str | None = None

    def apply(self, rows: QuerySet[UsageRollup]) -> QuerySet[UsageRollup]:
        wanted = {
            "day__gte": self.since,
            "day__lt": self.until,
            "job_id": self.job_id,
            "project_id": self.project_id,
            "key_id": self.key_id,
            "meter": self.meter,
        }
        return rows.filter(**{name: value for name, value in wanted.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a job has used so far: money, and microseconds of measured device time that are billed."""

    amount: Decimal
    compute_us: int


def job_cost(tenant: Tenant, job_id: UUID | str) -> Cost:
    """What a job has cost so far."""
    with tenant_scope(tenant):
        return cost_of(UsageRollup.objects.filter(job_id=job_id), tenant.currency)


def job_costs(tenant: Tenant, job_ids: Collection[UUID]) -> dict[UUID, Cost]:
    """What each of these jobs has cost so far, in one query; jobs without usage cost nothing."""
    lines: dict[UUID, list[CostLine]] = {job_id: [] for job_id in job_ids}
    with tenant_scope(tenant):
        for job_id, line in lines_of(UsageRollup.objects.filter(job_id__in=job_ids), "job_id"):
            lines[job_id].append(line)
    return {job_id: total_of(tuple(own), tenant.currency) for job_id, own in lines.items()}


def tenant_cost(tenant: Tenant, *, since: datetime | None = None, until: datetime | None = None) -> Cost:
    """What a tenant has used within [since, until), both midnight UTC. Raises ValueError for other moments."""
    with tenant_scope(tenant):
        wanted = UsageFilter(since=since and _day(since), until=until and _day(until))
        return cost_of(wanted.apply(UsageRollup.objects.all()), tenant.currency)


def tenant_total(tenant: Tenant, wanted: UsageFilter) -> Cost:
    """What a tenant has used of anything that can be asked for, by meter."""
    with tenant_scope(tenant):
        return cost_of(wanted.apply(UsageRollup.objects.all()), tenant.currency)


def usage_totals(
    tenant: Tenant, *, job_id: UUID | None = None, group_by: GroupBy = "meter", wanted: UsageFilter | None = None
) -> list[UsageTotal]:
    """Usage by meter; or by job, UTC day, project or API key, and meter."""
    wanted = wanted or UsageFilter(job_id=job_id)
    with tenant_scope(tenant):
        found = list(lines_of(wanted.apply(UsageRollup.objects.all()), _COLUMN[group_by]))
        labels = _labels(group_by, {group for group, _ in found})
        return [UsageTotal(group=group, line=line, label=labels.get(group, "")) for group, line in found]


def spent(tenant: Tenant | UUID, *, month: date, project: Project | UUID | None = None) -> Decimal:
    """Money for usage of the calendar month that begins at ``month``, of the tenant or of one of its projects."""
    rows = _of(tenant).filter(day__gte=month, day__lt=month_after(month))
    return _money(rows if project is None else rows.filter(project_id=_pk(project)))


def spent_of_job(tenant: Tenant | UUID, job_id: UUID) -> Decimal:
    """Money for everything a job has used."""
    return _money(_of(tenant).filter(job_id=job_id))


def spent_of_key(tenant: Tenant | UUID, key: ApiKey | UUID) -> Decimal:
    """Money for everything that jobs submitted with an API key have used."""
    return _money(_of(tenant).filter(key_id=_pk(key)))


def spending_of(jobs: Collection[tuple[UUID, UUID]]) -> dict[tuple[UUID, UUID], Spending]:
    """What each (tenant id, job id) has used so far, of any tenants, in one query. For the platform."""
    with platform_scope():
        rows = UsageRollup.objects.filter(
            tenant_id__in={tenant_id for tenant_id, _ in jobs}, job_id__in={job_id for _, job_id in jobs}
        )
        time_us = Sum("quantity", filter=Q(meter__in=COMPUTE_METERS, reason=""), default=0)
        sums = rows.values("tenant_id", "job_id").annotate(money=Sum("amount"), time_us=time_us)
        found = {
            (row["tenant_id"], row["job_id"]): Spending(amount=row["money"], compute_us=int(row["time_us"]))
            for row in sums
        }
    return {key: found.get(key, Spending(amount=Decimal(0), compute_us=0)) for key in jobs}


def metered_us(meter: Meter) -> dict[str, int]:
    """Measured time of one service on the books, tenant id -> microseconds.

    The other side is `jobs.DeviceSpan.shares`. Free work (``billable=False``) counts: it was measured, and is rated 0.
    """
    with platform_scope():
        rows = (
            UsageEvent.objects.filter(meter=meter)
            .values("tenant_id")
            .annotate(total=Sum("quantity"))
            .order_by("tenant_id")
        )
        return {str(row["tenant_id"]): int(row["total"]) for row in rows}


def _of(tenant: Tenant | UUID) -> QuerySet[UsageRollup]:
    """One tenant's rollups, whichever scope is open."""
    with platform_scope():
        return UsageRollup.objects.filter(tenant_id=_pk(tenant))


def _pk(row: Tenant | Project | ApiKey | UUID) -> UUID:
    return row if isinstance(row, UUID) else row.pk


def _money(rows: QuerySet[UsageRollup]) -> Decimal:
    with platform_scope():
        total: Decimal = rows.aggregate(total=Sum("amount"))["total"] or Decimal(0)
        return total


def _day(moment: datetime) -> date:
    own = moment.astimezone(UTC)
    if own.time() != time(0):
        raise ValueError(f"running sums are by UTC day: {moment.isoformat()} is not midnight")
    return own.date()


def _labels(group_by: GroupBy, groups: set[Any]) -> dict[Any, str]:
    """Projects and keys by name; every other group says itself what it is."""
    if group_by == "project":
        return {row.pk: row.slug for row in Project.objects.filter(pk__in=groups - {None})}
    if group_by == "key":
        return {row.pk: f"{row.name} ({row.prefix})" for row in ApiKey.objects.filter(pk__in=groups - {None})}
    return {}
