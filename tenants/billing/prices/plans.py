"""Writes of operators: plans, announced prices and factors, and who is on which plan.

Nothing here reaches back: everything announced starts later than any usage on the books can have happened.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.audit.services import audit
from tenants.billing.currencies import MINOR_PLACES
from tenants.billing.models import Meter, PricePlan, PriceVersion, PriorityFactor, TenantPlan
from tenants.billing.prices.offers import Offer, offer_of
from tenants.billing.prices.tariffs import Tariffs
from tenants.billing.usage.works import FUTURE_TOLERANCE
from tenants.errors import ApplicationError, FieldError
from tenants.models import Tenant, User
from tenants.scope import platform_scope

# Usage may be told up to FUTURE_TOLERANCE ahead of time; as much again is left for this transaction to end.
NOTICE = 2 * FUTURE_TOLERANCE
PERMILLE_MAX = 100_000
PRIORITY_MAX = 9


@transaction.atomic
def plan_create(*, by: User, code: str, name: str, currency: str, copy_of: PricePlan | None = None) -> PricePlan:
    """A new plan, on which nobody is yet; ``copy_of`` gives it the prices and factors that another has in force.

    Raises ApplicationError 409 if the code is taken, 422 for a currency we cannot bill in or not the other plan's.
    """
    if currency not in MINOR_PLACES:
        known = ", ".join(sorted(MINOR_PLACES))
        raise _invalid("currency", "currency_unknown", f"Currency {currency!r} is not one of {known}.")
    if copy_of is not None and copy_of.currency != currency:
        raise _invalid("copy_of", "currency_differs", f"{copy_of.code!r} is in {copy_of.currency}, not in {currency}.")
    try:
        with transaction.atomic():
            plan = PricePlan.objects.create(code=code, name=name, currency=currency)
    except IntegrityError as error:
        raise ApplicationError(code="plan_exists", status=409, detail=f"There is a plan {code!r} already.") from error
    if copy_of is not None:
        _copy(copy_of, plan, by)
    after = {"code": code, "currency": currency, "copy_of": copy_of.code if copy_of else None}
    audit(by=by, verb="plan.created", target=plan, tenant=None, after=after)
    return plan


@transaction.atomic
def price_announce(
    *,
    by: User,
    plan: PricePlan,
    meter: str,
    shape: str,
    amount: Decimal | None,
    per: int,
    valid_from: datetime,
    expected_version: int,
    tiers: Sequence[dict[str, Any]] = (),
    reason: str = "",
) -> PriceVersion:
    """Announce what a meter costs in a plan from ``valid_from`` on; the form of a price is in `offers`.

    Raises ApplicationError: 412 if the plan is no longer at ``expected_version``, 422 for a price that makes no sense
    or starts too soon, 409 if one starts at that moment already.
    """
    if meter not in Meter.values:
        raise _invalid("meter", "unknown_meter", f"Meter {meter!r} is not one of {Meter.values}.")
    offer = offer_of(shape=shape, amount=amount, per=per, tiers=tiers)
    _require_notice(valid_from)
    locked = _bumped(plan, expected_version)
    try:
        with transaction.atomic():
            version = PriceVersion.objects.create(
                plan=locked,
                meter=meter,
                valid_from=valid_from,
                currency=locked.currency,
                created_by=by,
                **_columns(offer),
            )
    except IntegrityError as error:
        raise _taken("price", valid_from) from error
    after = {"meter": meter, "valid_from": valid_from.isoformat(), **offer.as_json()}
    before = _before(locked, meter, valid_from)
    audit(by=by, verb="price.announced", target=locked, tenant=None, before=before, after=after, reason=reason)
    return version


@transaction.atomic
def factor_announce(
    *,
    by: User,
    plan: PricePlan,
    priority: int,
    permille: int,
    valid_from: datetime,
    expected_version: int,
    reason: str = "",
) -> PriorityFactor:
    """Announce what jobs of a priority pay from ``valid_from`` on, in thousandths of the price. Raises like prices."""
    if not 0 <= priority <= PRIORITY_MAX:
        raise _invalid("priority", "priority_range", f"Priorities are 0 to {PRIORITY_MAX}; got {priority}.")
    if not 1 <= permille <= PERMILLE_MAX:
        raise _invalid("permille", "permille_range", f"Factors are 1 to {PERMILLE_MAX} thousandths; got {permille}.")
    _require_notice(valid_from)
    locked = _bumped(plan, expected_version)
    try:
        with transaction.atomic():
            factor = PriorityFactor.objects.create(
                plan=locked, priority=priority, permille=permille, valid_from=valid_from, created_by=by
            )
    except IntegrityError as error:
        raise _taken("factor", valid_from) from error
    after = {"priority": priority, "permille": permille, "valid_from": valid_from.isoformat()}
    audit(by=by, verb="factor.announced", target=locked, tenant=None, after=after, reason=reason)
    return factor


@transaction.atomic
def tenant_plan_set(
    *, by: User, tenant: Tenant, plan: PricePlan, valid_from: datetime, reason: str = ""
) -> TenantPlan:
    """Put a tenant on a plan from ``valid_from`` on, until a later row takes over: two plans cannot overlap.

    Raises ApplicationError 422 if the plan is in another currency, starts too soon or lacks the price of a meter, 409
    if a plan starts at that moment already.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if plan.currency != tenant.currency:
        raise _invalid("plan", "currency_differs", f"{plan.code!r} is in {plan.currency}, not in {tenant.currency}.")
    _require_notice(valid_from)
    _require_complete(plan, valid_from)
    with platform_scope():
        before = Tariffs([tenant.pk], ()).plan_at(tenant.pk, valid_from).code
        try:
            with transaction.atomic():
                row = TenantPlan.objects.create(tenant=tenant, plan=plan, valid_from=valid_from, created_by=by)
        except IntegrityError as error:
            raise _taken("plan", valid_from) from error
    after = {"plan": plan.code, "valid_from": valid_from.isoformat()}
    audit(
        by=by, verb="plan.assigned", target=tenant, tenant=tenant, before={"plan": before}, after=after, reason=reason
    )
    return row


def _bumped(plan: PricePlan, expected_version: int) -> PricePlan:
    """The plan, locked and one version further: what the operator saw is what is being changed."""
    locked = PricePlan.objects.select_for_update(no_key=True).get(pk=plan.pk)
    if locked.version != expected_version:
        raise ApplicationError(
            code="precondition_failed",
            status=412,
            detail=f"The plan {locked.code!r} was changed meanwhile: it is at version {locked.version}, "
            f"not {expected_version}.",
        )
    locked.version += 1
    locked.save(update_fields=["version"])
    return locked


def _copy(source: PricePlan, plan: PricePlan, by: User) -> None:
    """Prices and factors in force now; of a plan without tenants they re-price nothing."""
    now = timezone.now()
    prices: dict[str, PriceVersion] = {}
    for version in PriceVersion.objects.filter(plan=source, valid_from__lte=now).order_by("valid_from"):
        prices[version.meter] = version
    factors: dict[int, PriorityFactor] = {}
    for factor in PriorityFactor.objects.filter(plan=source, valid_from__lte=now).order_by("valid_from"):
        factors[factor.priority] = factor
    for version in prices.values():
        version.pk, version.plan, version.valid_from, version.created_by = None, plan, now, by
    for factor in factors.values():
        factor.pk, factor.plan, factor.valid_from, factor.created_by = None, plan, now, by
    PriceVersion.objects.bulk_create(prices.values())
    PriorityFactor.objects.bulk_create(factors.values())


def _columns(offer: Offer) -> dict[str, Any]:
    return {
        "shape": offer.price.shape,
        "amount": offer.price.amount,
        "per": offer.price.per,
        "tiers": offer.tiers_json,
    }


def _before(plan: PricePlan, meter: str, moment: datetime) -> dict[str, Any] | None:
    """What the new price takes over from."""
    earlier = PriceVersion.objects.filter(plan=plan, meter=meter, valid_from__lt=moment).order_by("-valid_from")
    version = earlier.first()
    if version is None:
        return None
    told = {"shape": version.shape, "amount": f"{version.amount:f}", "per": version.per, "tiers": version.tiers}
    return {"meter": meter, "valid_from": version.valid_from.isoformat(), **told}


def _require_complete(plan: PricePlan, moment: datetime) -> None:
    """Refuse a plan in which some usage would have no price."""
    priced = PriceVersion.objects.filter(plan=plan, valid_from__lte=moment).values_list("meter", flat=True)
    missing = sorted(set(Meter.values) - set(priced))
    if missing:
        raise _invalid("plan", "plan_incomplete", f"The plan {plan.code!r} has no price of {missing} by then.")


def _require_notice(valid_from: datetime) -> None:
    earliest = timezone.now() + NOTICE
    if valid_from < earliest:
        detail = f"It must start at {earliest.isoformat(timespec='seconds')} or later; got {valid_from.isoformat()}."
        raise _invalid("valid_from", "starts_too_soon", detail)


def _taken(noun: str, moment: datetime) -> ApplicationError:
    return ApplicationError(
        code=f"{noun}_exists",
        status=409,
        detail=f"A {noun} starts at {moment.isoformat()} already; what is announced stays. Choose another moment.",
    )


def _invalid(name: str, code: str, detail: str) -> ApplicationError:
    error = FieldError(pointer=f"/{name}", code=code, detail=detail)
    return ApplicationError(code=code, status=422, detail=detail, errors=(error,))
