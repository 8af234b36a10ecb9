"""Everything the tenant's screen shows, in a fixed number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from control_plane.operator.quota_bars import Bar, quota_bars
from jobs.models import Job
from jobs.selectors.line import QueuePlace, queue_places
from jobs.states import LIVE, JobState
from tenants.audit.models import AuditEvent
from tenants.billing.ledger.books import account_of
from tenants.billing.models import (
    DEFAULT_PLAN,
    Account,
    BillingAccount,
    Budget,
    Invoice,
    LedgerEntry,
    PricePlan,
    TenantPlan,
)
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.selectors import Cost, job_costs, tenant_cost
from tenants.models import ApiKey, Membership, Tenant

JOBS_SHOWN, ERRORS_SHOWN, INVOICES_SHOWN, ACTS_SHOWN, PEOPLE_SHOWN = 15, 8, 12, 15, 50
FAILED_WITHIN = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFacts:
    """Money is in the tenant's currency; ``unbilled`` and ``owed`` are positive where the tenant owes."""

    account: BillingAccount
    unbilled: Decimal
    owed: Decimal
    month: Cost
    bars: Sequence[Bar]
    live_jobs: Sequence["LiveJob"]
    failed_jobs: Sequence[Job]
    members: Sequence[Membership]
    keys: Sequence[ApiKey]
    plan: PricePlan
    plan_since: datetime | None
    plans_to_come: Sequence[TenantPlan]
    budgets: Sequence[Budget]
    invoices: Sequence[Invoice]
    acts: Sequence[AuditEvent]


def tenant_facts(tenant: Tenant) -> TenantFacts:
    """Needs the platform's scope."""
    now = timezone.now()
    sums = _ledger_sums(tenant)
    plans = list(TenantPlan.objects.filter(tenant=tenant).select_related("plan").order_by("-valid_from"))
    current = next((row for row in plans if row.valid_from <= now), None)
    return TenantFacts(
        account=account_of(tenant),
        unbilled=-sums.get(Account.UNBILLED, Decimal(0)),
        owed=-sums.get(Account.RECEIVABLE, Decimal(0)),
        month=tenant_cost(tenant, since=_midnight(month_of(now))),
        bars=quota_bars(tenant),
        live_jobs=live_jobs(tenant),
        failed_jobs=list(_jobs(tenant, Q(state=JobState.FAILED, created_at__gte=now - FAILED_WITHIN))[:ERRORS_SHOWN]),
        members=list(_members(tenant)),
        keys=list(_keys(tenant, now)),
        plan=current.plan if current else PricePlan.objects.get(code=DEFAULT_PLAN),
        plan_since=current.valid_from if current else None,
        plans_to_come=[row for row in reversed(plans) if row.valid_from > now],
        budgets=list(_budgets(tenant)),
        invoices=list(Invoice.objects.filter(tenant=tenant).order_by("-period_start", "-created_at")[:INVOICES_SHOWN]),
        acts=list(AuditEvent.objects.filter(tenant=tenant).order_by("-occurred_at", "-pk")[:ACTS_SHOWN]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job that is not over, with what it has cost and, if it waits, its place in the line."""

    job: Job
    cost: Cost
    place: QueuePlace | None


def live_jobs(tenant: Tenant) -> list[LiveJob]:
    """The newest few that are not over."""
    jobs = list(_jobs(tenant, Q(state__in=LIVE))[:JOBS_SHOWN])
    costs = job_costs(tenant, [job.pk for job in jobs])
    places = queue_places(tenant.pk, jobs)
    return [LiveJob(job=job, cost=costs[job.pk], place=places.get(job.pk)) for job in jobs]


def _jobs(tenant: Tenant, which: Q) -> QuerySet[Job]:
    return Job.objects.filter(which, tenant=tenant).select_related("project").defer("spec").order_by("-created_at")


def _members(tenant: Tenant) -> QuerySet[Membership]:
    return Membership.objects.filter(tenant=tenant).select_related("user").order_by("created_at")[:PEOPLE_SHOWN]


def _budgets(tenant: Tenant) -> QuerySet[Budget]:
    return Budget.objects.filter(tenant=tenant, ended_at=None).select_related("project").order_by("created_at")


def _keys(tenant: Tenant, now: datetime) -> QuerySet[ApiKey]:
    live = Q(expires_at=None) | Q(expires_at__gt=now)
    keys = ApiKey.objects.filter(live, tenant=tenant, revoked_at=None).select_related("project")
    return keys.order_by("-created_at")[:PEOPLE_SHOWN]


def _ledger_sums(tenant: Tenant) -> dict[str, Decimal]:
    """Sums of the tenant's ledger by account, exact."""
    entries = LedgerEntry.objects.filter(tenant=tenant, account__in=[Account.UNBILLED, Account.RECEIVABLE])
    return {row["account"]: row["sum"] for row in entries.values("account").annotate(sum=Sum("amount")).order_by()}


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
