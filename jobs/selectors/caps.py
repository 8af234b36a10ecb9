"""What caps are decided by, of any tenants at once: a fixed number of queries, whoever and how many they are."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q, Sum
from django.utils import timezone

from jobs.cap_rules import NOTHING, Facts, LiveJob, Scope
from jobs.models import Job
from jobs.states import JobState
from tenants.billing.models import (
    COMPUTE_METERS,
    BillingAccount,
    BillingMode,
    Budget,
    Hold,
    UsageEvent,
    UsageRollup,
)
from tenants.billing.usage.periods import month_after, month_of
from tenants.billing.usage.selectors import Spending, spending_of
from tenants.models import ApiKey
from tenants.quotas.models import DefaultQuota, Quota, Resource
from tenants.scope import platform_scope

STOPPABLE = frozenset({JobState.STARTING, JobState.RUNNING})
_CAPPED = (Resource.COMPUTE_S_PER_JOB, Resource.COMPUTE_S_PER_MONTH, Resource.MONEY_PER_MONTH)
_TIME_US = Sum("quantity", filter=Q(meter__in=COMPUTE_METERS, reason=""), default=0)


def live_jobs(tenant_ids: Collection[UUID]) -> list[LiveJob]:
    """Every started job of these tenants that nobody has asked to stop."""
    with platform_scope():
        rows = Job.objects.filter(tenant_id__in=tenant_ids, state__in=STOPPABLE).order_by("pk")
        return [_live(*row) for row in rows.values_list("pk", "tenant_id", "project_id", "api_key_id", "spec__budget")]


def live_job(job: Job) -> LiveJob:
    """One job, started or not."""
    return _live(job.pk, job.tenant_id, job.project_id, job.api_key_id, job.spec.get("budget"))


def live_tenants() -> set[UUID]:
    """Tenants with such a job."""
    with platform_scope():
        return set(Job.objects.filter(state__in=STOPPABLE).values_list("tenant_id", flat=True))


def facts_of(live: Collection[LiveJob], ahead: Mapping[UUID, Spending]) -> Facts:
    """What these jobs and everything that contains them have used, and may use."""
    tenants = {job.tenant_id for job in live}
    keys = {job.key_id for job in live if job.key_id is not None}
    with platform_scope():
        limits, budgets = _limits(tenants), _budgets(tenants)
        caps = dict(ApiKey.objects.filter(pk__in=keys, spend_cap__isnull=False).values_list("pk", "spend_cap"))
        spending = spending_of({(job.tenant_id, job.job_id) for job in live})
        by_month = budgets or any(resource != Resource.COMPUTE_S_PER_JOB for _, resource in limits)
        return Facts(
            jobs={job_id: used for (_, job_id), used in spending.items()},
            ahead=ahead,
            months=_months(tenants) if by_month else {},
            ahead_of=_summed((scope, ahead.get(job.job_id, NOTHING)) for job in live for scope in job.scopes),
            limits=limits,
            budgets=budgets,
            key_caps=caps,
            keys=_spent_of_keys(tenants, caps) if caps else {},
            ahead_of_keys=_summed_money((job.key_id, ahead.get(job.job_id, NOTHING)) for job in live if job.key_id),
            left=_credit_left(live, tenants),
        )


def usage_of_events(source: str, event_ids: Collection[str]) -> dict[UUID, Spending]:
    """What these usage events cost, by job."""
    if not event_ids:
        return {}
    with platform_scope():
        events = UsageEvent.objects.filter(source=source, event_id__in=event_ids)
        sums = events.order_by().values("job_id").annotate(money=Sum("rated__amount"), time_us=_TIME_US)
        return {
            row["job_id"]: Spending(amount=row["money"] or Decimal(0), compute_us=int(row["time_us"])) for row in sums
        }


def _live(
    job_id: UUID, tenant_id: UUID, project_id: UUID, key_id: UUID | None, budget: dict[str, Any] | None
) -> LiveJob:
    allowed = budget or {}
    cost = allowed.get("max_cost")
    return LiveJob(
        job_id=job_id,
        tenant_id=tenant_id,
        project_id=project_id,
        key_id=key_id,
        max_cost=None if cost is None else Decimal(cost),
        max_compute_s=allowed.get("max_compute_s"),
    )


def _limits(tenants: Collection[UUID]) -> dict[tuple[Scope, Resource], int]:
    """Of several in force the newest; a tenant without one of its own has the platform's default."""
    defaults = dict(DefaultQuota.objects.filter(resource__in=_CAPPED).values_list("resource", "limit"))
    found = {(Scope(tenant), Resource(name)): limit for tenant in tenants for name, limit in defaults.items()}
    in_force = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    rows = Quota.objects.filter(in_force, tenant_id__in=tenants, resource__in=_CAPPED, ended_at=None)
    for row in rows.order_by("created_at", "pk"):
        found[Scope(row.tenant_id, row.project_id), Resource(row.resource)] = row.limit
    return found


def _budgets(tenants: Collection[UUID]) -> dict[Scope, Decimal]:
    rows = Budget.objects.filter(tenant_id__in=tenants, hard=True, ended_at=None)
    return {Scope(row.tenant_id, row.project_id): row.amount for row in rows}


def _months(tenants: Collection[UUID]) -> dict[Scope, Spending]:
    """Usage of the calendar month, of each project and of each tenant as a whole."""
    month = month_of(timezone.now())
    rows = UsageRollup.objects.filter(tenant_id__in=tenants, day__gte=month, day__lt=month_after(month))
    sums = rows.order_by().values_list("tenant_id", "project_id").annotate(money=Sum("amount"), time_us=_TIME_US)
    return _summed(
        (scope, Spending(amount=money, compute_us=int(time_us)))
        for tenant_id, project_id, money, time_us in sums
        for scope in {Scope(tenant_id), Scope(tenant_id, project_id)}  # storage is of no project
    )


def _spent_of_keys(tenants: Collection[UUID], keys: Collection[UUID]) -> dict[UUID, Decimal]:
    rows = UsageRollup.objects.filter(tenant_id__in=tenants, key_id__in=keys).order_by()
    return dict(rows.values_list("key_id").annotate(money=Sum("amount")))


def _credit_left(live: Collection[LiveJob], tenants: Collection[UUID]) -> dict[UUID, Decimal]:
    """Of jobs of prepaid tenants: what their own hold still has, and the free credit."""
    accounts = BillingAccount.objects.filter(tenant_id__in=tenants, mode=BillingMode.PREPAID)
    credit = dict(accounts.values_list("tenant_id", "credit"))
    payers = [job for job in live if job.tenant_id in credit]
    if not payers:
        return {}
    holds = Hold.objects.filter(job_id__in=[job.job_id for job in payers], released_at=None)
    held = {hold.job_id: hold.funded - hold.captured_funds for hold in holds}
    return {job.job_id: credit[job.tenant_id] + held.get(job.job_id, Decimal(0)) for job in payers}


def _summed(parts: Iterable[tuple[Scope, Spending]]) -> dict[Scope, Spending]:
    total: dict[Scope, Spending] = {}
    for scope, part in parts:
        known = total.get(scope, NOTHING)
        total[scope] = Spending(amount=known.amount + part.amount, compute_us=known.compute_us + part.compute_us)
    return total


def _summed_money(parts: Iterable[tuple[UUID | None, Spending]]) -> dict[UUID, Decimal]:
    total: defaultdict[UUID, Decimal] = defaultdict(Decimal)
    for key, part in parts:
        if key is not None:
            total[key] += part.amount
    return dict(total)
