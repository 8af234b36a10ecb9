"""Whether a job may still be paid for: caps, monthly limits and hard budgets, with what is reserved counted in.

Each check keeps ``spent + reserved + this job's hold <= limit``, read with the tenant's row locked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from django.db.models import Q
from django.utils import timezone

from tenants.billing.ledger.holds import reserved, reserved_by_key
from tenants.billing.models import Budget
from tenants.billing.money import plain
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.selectors import spent, spent_of_key
from tenants.errors import ApplicationError, FieldError
from tenants.models import ApiKey, Project, Tenant
from tenants.quotas.limits import Limits
from tenants.quotas.models import Resource
from tenants.quotas.usage import month_used
from tenants.scope import tenant_scope

HOLD_MAX = Decimal(1_000_000)  # of one job, in the tenant's currency
HELD_MAX = Decimal(5_000_000)  # of all jobs of a tenant together: sums stay far within what a database column holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A limit on money: what counts against it so far, and what raises it."""

    resource: str
    name: str
    limit: Decimal
    used: Decimal
    remedy: str


def spending_refusals(
    *, tenant: Tenant, project: Project, key: ApiKey | None, limits: Limits, amount: Decimal
) -> Iterator[ApplicationError]:
    """Every limit on money or compute that a job with this hold would break."""
    if amount > HOLD_MAX:
        yield _unbounded(tenant, amount)
    month = month_of(timezone.now())
    for cap in _caps(tenant, project, key, limits, month):
        if cap.used + amount > cap.limit or (amount == 0 and cap.used >= cap.limit):
            yield _too_little(tenant, cap, amount)
    yield from _compute_refusals(tenant, project, limits, month)


def _caps(tenant: Tenant, project: Project, key: ApiKey | None, limits: Limits, month: date) -> Iterator[Cap]:
    held = reserved(tenant)
    yield Cap(
        resource="held",
        name="what all your jobs together may have reserved",
        limit=HELD_MAX,
        used=held,
        remedy="give your jobs a budget.max_cost",
    )
    if key is not None:
        yield from _cap_of_key(tenant, key)
    used = spent(tenant, month=month) + held
    used_of_project = spent(tenant, month=month, project=project) + reserved(tenant, project)
    own = limits.of_tenant(Resource.MONEY_PER_MONTH)
    of_project = limits.of_project(project.pk, Resource.MONEY_PER_MONTH)
    ask = "have it raised, or wait for the next month"
    if own is not None:
        name = "the limit money_per_month of your tenant"
        yield Cap(resource=Resource.MONEY_PER_MONTH, name=name, limit=Decimal(own), used=used, remedy=ask)
    if of_project is not None:
        name, limit = f"the limit money_per_month of the project {project.slug!r}", Decimal(of_project)
        yield Cap(resource=Resource.MONEY_PER_MONTH, name=name, limit=limit, used=used_of_project, remedy=ask)
    with tenant_scope(tenant):
        hard = Budget.objects.filter(Q(project=None) | Q(project=project), ended_at=None, hard=True)
        budgets = list(hard.order_by("pk"))
    for row in budgets:
        whose = f"project {project.slug!r}" if row.project_id else "tenant"
        counted = used_of_project if row.project_id else used
        name = f"this month's hard budget of your {whose}"
        yield Cap(resource="budget", name=name, limit=row.amount, used=counted, remedy="raise the budget")


def _cap_of_key(tenant: Tenant, key: ApiKey) -> Iterator[Cap]:
    with tenant_scope(tenant):
        cap = ApiKey.objects.values_list("spend_cap", flat=True).get(pk=key.pk)  # as it is now
    if cap is not None:
        used = spent_of_key(tenant, key) + reserved_by_key(tenant, key.pk)
        name, remedy = "the spend cap of this API key", "use another key, or have its cap raised"
        yield Cap(resource="key_spend_cap", name=name, limit=cap, used=used, remedy=remedy)


def _too_little(tenant: Tenant, cap: Cap, amount: Decimal) -> ApplicationError:
    left = max(cap.limit - cap.used, Decimal(0))
    less = f"give budget.max_cost of at most {plain(left)}, " if left > 0 else ""
    detail = (
        f"The job needs {plain(amount)} {tenant.currency}; {cap.name} is {plain(cap.limit)}, of which "
        f"{plain(cap.used)} are spent or reserved. Allowed: {less}{cap.remedy}, or wait until jobs have ended."
    )
    extra: dict[str, object] = {
        "resource": str(cap.resource),
        "limit": f"{cap.limit:f}",
        "used": f"{cap.used:f}",
        "needed": f"{amount:f}",
        "currency": tenant.currency,
    }
    return ApplicationError(code="spend_limit_reached", status=402, detail=detail, extra=extra)


def _compute_refusals(tenant: Tenant, project: Project, limits: Limits, month: date) -> Iterator[ApplicationError]:
    resource = Resource.COMPUTE_S_PER_MONTH
    own, of_project = limits.of_tenant(resource), limits.of_project(project.pk, resource)
    if own is None and of_project is None:
        return
    used = month_used(tenant, month)
    for limit, project_id, whose in ((own, None, "your tenant"), (of_project, project.pk, repr(project.slug))):
        seconds = used.get(project_id, {}).get(resource, 0)
        if limit is not None and seconds >= limit:
            detail = (
                f"Jobs of {whose} have computed {seconds} s this month; the limit {resource} is {limit} s. "
                "Allowed: have it raised, or wait for the next month."
            )
            extra: dict[str, object] = {"resource": str(resource), "limit": limit, "used": seconds}
            yield ApplicationError(code="quota_exceeded", status=409, detail=detail, extra=extra)


def _unbounded(tenant: Tenant, amount: Decimal) -> ApplicationError:
    detail = (
        f"By its specification the job may cost {plain(amount)} {tenant.currency}. Give budget.max_cost of at most "
        f"{plain(HOLD_MAX)}: the job stops when it is used up and keeps what it made."
    )
    error = FieldError(pointer="/budget/max_cost", code="cost_unbounded", detail=detail)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))
