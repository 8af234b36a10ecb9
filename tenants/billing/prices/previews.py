"""What a month would have cost at another price: rated anew in memory, to the last digit, and never stored."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet, Sum, Value

from tenants.billing.models import PricePlan, RatedUsage, UsageRollup
from tenants.billing.prices.offers import offer_of
from tenants.billing.prices.pricing import Price, charge, is_exact
from tenants.billing.usage.periods import month_after
from tenants.models import Tenant
from tenants.scope import platform_scope

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRow:
    """One tenant's billed units of a meter in a month, what they cost, and what they would have cost."""

    tenant: Tenant
    quantity: int
    cost_now: Decimal
    cost_then: Decimal

    @property
    def difference(self) -> Decimal:
        return self.cost_then - self.cost_now


def price_preview(
    *,
    plan: PricePlan,
    meter: str,
    shape: str,
    amount: Decimal | None,
    per: int,
    month: date,
    tiers: Sequence[dict[str, Any]] = (),
) -> list[PreviewRow]:
    """What this price would have made of a month, per tenant that had usage on the plan in it; by tenant's name.

    ``month`` is a first day; usage counts in the month it happened. Every event is rated as `usage_ingest_batch`
    would have: with the factor it was rated with, after the units that came before it. Raises ApplicationError like
    `offer_of`.
    """
    price = offer_of(shape=shape, amount=amount, per=per, tiers=tiers).price
    with platform_scope():
        rated = _billed(meter, month)
        sums = _sums(rated, plan)
        then = (
            _replayed(rated, plan, price) if price.counts_on else _rated_apart(rated.filter(price__plan=plan), price)
        )
        tenants = Tenant.objects.in_bulk(list(sums))
    rows = [
        PreviewRow(tenant=tenants[tenant_id], quantity=quantity, cost_now=now, cost_then=then[tenant_id])
        for tenant_id, (quantity, now) in sums.items()
    ]
    return sorted(rows, key=lambda row: (row.tenant.name, str(row.tenant.pk)))


def _billed(meter: str, month: date) -> QuerySet[RatedUsage]:
    """Billed usage of a meter that happened in a month: on that month's invoice, or, if late, on a later one."""
    start = datetime.combine(month, time(0), UTC)
    users = UsageRollup.objects.filter(meter=meter, day__gte=month, day__lt=month_after(month))
    return RatedUsage.objects.filter(
        tenant_id__in=users.values("tenant_id"),
        period__gte=month,
        event__meter=meter,
        event__billable=True,
        event__occurred_at__gte=start,
        event__occurred_at__lt=datetime.combine(month_after(month), time(0), UTC),
    )


def _sums(rated: QuerySet[RatedUsage], plan: PricePlan) -> dict[UUID, tuple[int, Decimal]]:
    """Tenant -> units and money of what was rated by the plan."""
    rows = rated.filter(price__plan=plan).values("tenant_id")
    summed = rows.annotate(units=Sum("event__quantity"), money=Sum("amount")).order_by("tenant_id")
    return {row["tenant_id"]: (int(row["units"]), row["money"]) for row in summed}


def _rated_apart(rated: QuerySet[RatedUsage], price: Price) -> dict[UUID, Decimal]:
    """A unit price: events of the same size and factor cost the same. Where nothing is rounded, sums are enough."""
    costs: defaultdict[UUID, Decimal] = defaultdict(lambda: ZERO)
    factors = set(rated.values_list("factor_permille", flat=True).distinct())
    for permille in factors:
        own = rated.filter(factor_permille=permille).values("tenant_id")
        if is_exact(price, permille):
            sums = own.annotate(size=Sum("event__quantity"), times=Value(1))
        else:
            sums = own.annotate(size=F("event__quantity"), times=Count("pk"))
        for tenant_id, size, times in sums.order_by().values_list("tenant_id", "size", "times").iterator():
            costs[tenant_id] += times * charge(price, int(size), permille=permille)
    return costs


def _replayed(rated: QuerySet[RatedUsage], plan: PricePlan, price: Price) -> dict[UUID, Decimal]:
    """A price that counts on. A tenant with one factor and no other plan in the month pays for the sum; of any
    other the events are gone through in the order in which they came.
    """
    groups = rated.values("tenant_id", "price__plan_id", "factor_permille").annotate(units=Sum("event__quantity"))
    costs: dict[UUID, Decimal] = {}
    mixed = []
    for tenant_id, own in groupby(groups.order_by("tenant_id"), key=itemgetter("tenant_id")):
        parts = list(own)
        if len(parts) > 1:
            mixed.append(tenant_id)
        elif parts[0]["price__plan_id"] == plan.pk:
            costs[tenant_id] = charge(price, int(parts[0]["units"]), permille=parts[0]["factor_permille"])
    columns = ("tenant_id", "price__plan_id", "factor_permille", "event__quantity")
    ordered = rated.filter(tenant_id__in=mixed).order_by("tenant_id", "event_id").values_list(*columns)
    for tenant_id, events in groupby(ordered.iterator(), key=itemgetter(0)):
        costs[tenant_id] = _in_turn(events, plan, price)
    return costs


def _in_turn(events: Iterable[tuple[UUID, int, int, int]], plan: PricePlan, price: Price) -> Decimal:
    """One tenant's events one after the other; those of another plan count, and cost nothing here."""
    before, cost = 0, ZERO
    for _, plan_id, permille, quantity in events:
        if plan_id == plan.pk:
            cost += charge(price, quantity, before=before, permille=permille)
        before += quantity
    return cost
