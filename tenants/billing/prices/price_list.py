"""What a tenant pays now and what is announced: its plan, every version of its prices, and the priorities' factors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from tenants.billing.models import DEFAULT_PLAN, PricePlan, PriceVersion, PriorityFactor, TenantPlan
from tenants.billing.prices.tariffs import in_force
from tenants.models import Tenant
from tenants.scope import tenant_scope


class Validity(StrEnum):
    """Where a version is in its life."""

    ENDED = "ended"  # it still counts for what happened while it was valid
    IN_FORCE = "in_force"
    ANNOUNCED = "announced"  # starts later


VALIDITIES = [(state.value, state.value) for state in Validity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """When a version is valid: within [since, until), seen from one moment."""

    since: datetime
    until: datetime | None
    state: Validity


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """A tenant's prices at one moment; versions of one meter or priority newest first."""

    plan: PricePlan
    since: datetime | None  # None: nobody put the tenant on a plan, it is the default one
    coming: tuple[TenantPlan, ...]  # plans that take over later, in their order
    prices: tuple[tuple[PriceVersion, Term], ...]
    factors: tuple[tuple[PriorityFactor, Term], ...]


def price_list(tenant: Tenant, *, at: datetime) -> PriceList:
    """The price list of a tenant's plan at a moment. Four statements."""
    with tenant_scope(tenant):
        own = list(TenantPlan.objects.select_related("plan").order_by("valid_from"))
    current = in_force(own, at)
    plan = current.plan if current else PricePlan.objects.get(code=DEFAULT_PLAN)
    prices: list[tuple[PriceVersion, Term]] = []
    for _, versions in groupby(plan.prices.order_by("meter", "valid_from"), key=lambda row: row.meter):
        rows = list(versions)
        prices += reversed(list(zip(rows, _terms([row.valid_from for row in rows], at), strict=True)))
    factors: list[tuple[PriorityFactor, Term]] = []
    for _, changes in groupby(plan.factors.order_by("-priority", "valid_from"), key=lambda row: row.priority):
        steps = list(changes)
        factors += reversed(list(zip(steps, _terms([step.valid_from for step in steps], at), strict=True)))
    return PriceList(
        plan=plan,
        since=current.valid_from if current else None,
        coming=tuple(row for row in own if row.valid_from > at),
        prices=tuple(prices),
        factors=tuple(factors),
    )


def _terms(starts: Sequence[datetime], at: datetime) -> Iterator[Term]:
    """Each version is valid until the next one begins."""
    for index, since in enumerate(starts):
        until = starts[index + 1] if index + 1 < len(starts) else None
        if since > at:
            state = Validity.ANNOUNCED
        elif until is None or until > at:
            state = Validity.IN_FORCE
        else:
            state = Validity.ENDED
        yield Term(since=since, until=until, state=state)
