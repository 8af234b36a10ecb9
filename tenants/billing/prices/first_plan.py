"""The plan a new tenant begins on: the oldest complete one in its currency, the default plan before all others."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Min
from django.utils import timezone

from tenants.billing.currencies import MINOR_PLACES
from tenants.billing.models import DEFAULT_PLAN, Meter, PricePlan, PriceVersion, TenantPlan
from tenants.billing.usage.works import FUTURE_TOLERANCE
from tenants.errors import ApplicationError, FieldError
from tenants.models import Tenant
from tenants.scope import platform_scope

# A tenant's first usage may have happened before the tenant was made: storage when its hour began, the rest as far as
# clocks differ. Its plan has had every price for that long.
REACHES_BACK = timedelta(hours=1) + FUTURE_TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPlan:
    """A plan in which every meter has a price since ``complete_at``."""

    plan: PricePlan
    complete_at: datetime


def first_plans(now: datetime | None = None) -> dict[str, FirstPlan]:
    """What tenants made now would begin on, by currency: those that `currencies` can round. Two statements."""
    before = (now or timezone.now()) - REACHES_BACK
    begins: dict[int, dict[str, datetime]] = {}
    rows = PriceVersion.objects.filter(plan__currency__in=MINOR_PLACES, valid_from__lte=before)
    for plan_id, meter, first in rows.values_list("plan_id", "meter").annotate(Min("valid_from")).order_by():
        begins.setdefault(plan_id, {})[meter] = first
    complete = {plan_id: max(own.values()) for plan_id, own in begins.items() if set(own) == set(Meter.values)}
    plans = sorted(PricePlan.objects.filter(pk__in=complete), key=lambda plan: (plan.code != DEFAULT_PLAN, plan.pk))
    found: dict[str, FirstPlan] = {}
    for plan in plans:
        found.setdefault(plan.currency, FirstPlan(plan=plan, complete_at=complete[plan.pk]))
    return found


def first_plan_set(tenant: Tenant) -> PricePlan:
    """Put a tenant that was just made on the plan of its currency; the default plan needs no row.

    Raises ApplicationError 422 if no plan is complete in that currency.
    """
    offered = first_plans()
    first = offered.get(tenant.currency)
    if first is None:
        minutes, others = REACHES_BACK // timedelta(minutes=1), ", ".join(sorted(offered)) or "no currency"
        detail = (
            f"No plan in {tenant.currency!r} has had a price of every meter for {minutes} minutes; "
            f"there are plans in {others}."
        )
        error = FieldError(pointer="/currency", code="currency_without_plan", detail=detail)
        raise ApplicationError(code="currency_without_plan", status=422, detail=detail, errors=(error,))
    if first.plan.code != DEFAULT_PLAN:
        with platform_scope():
            TenantPlan.objects.create(tenant=tenant, plan=first.plan, valid_from=first.complete_at)
    return first.plan
