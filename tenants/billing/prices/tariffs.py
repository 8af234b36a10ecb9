"""Which plan, price and factor were valid for a tenant at a moment. Read once for many tenants, then looked up."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from django.db.models import Q

from tenants.billing.models import DEFAULT_PLAN, PricePlan, PriceShape, PriceVersion, PriorityFactor, TenantPlan
from tenants.billing.prices.pricing import PERMILLE, Price
from tenants.billing.prices.tiers import tiers_parse
from tenants.errors import ApplicationError


class _Dated(Protocol):
    valid_from: Any


D = TypeVar("D", bound=_Dated)


def in_force(rows: Sequence[D], moment: datetime) -> D | None:
    """Of rows in rising order of ``valid_from``, the newest that had begun at ``moment``; None before the first."""
    index = bisect_right(rows, moment, key=lambda row: row.valid_from)
    return rows[index - 1] if index else None


def price_of(version: PriceVersion) -> Price:
    """A stored price as it is reckoned with."""
    shape = PriceShape(version.shape)
    tiers = tiers_parse(version.tiers) if shape == PriceShape.GRADUATED else ()
    return Price(shape=shape, amount=version.amount, per=version.per, tiers=tiers)


class Tariffs:
    """Everything that decides what some tenants pay for some meters. Four statements, whatever their number.

    Reads rows of several tenants: needs the platform's scope, or that of the one tenant asked about.
    """

    def __init__(self, tenant_ids: Collection[UUID], meters: Collection[str]) -> None:
        self._tenant_plans: defaultdict[UUID, list[TenantPlan]] = defaultdict(list)
        for row in TenantPlan.objects.filter(tenant_id__in=set(tenant_ids)).order_by("valid_from"):
            self._tenant_plans[row.tenant_id].append(row)
        own = {row.plan_id for rows in self._tenant_plans.values() for row in rows}
        plans = PricePlan.objects.filter(Q(code=DEFAULT_PLAN) | Q(pk__in=own))
        self._plans = {plan.pk: plan for plan in plans}
        self._default = next((plan for plan in self._plans.values() if plan.code == DEFAULT_PLAN), None)
        self._versions: defaultdict[tuple[int, str], list[PriceVersion]] = defaultdict(list)
        versions = PriceVersion.objects.filter(plan_id__in=set(self._plans), meter__in=set(meters))
        for version in versions.order_by("valid_from"):
            self._versions[version.plan_id, version.meter].append(version)
        self._factors: defaultdict[tuple[int, int], list[PriorityFactor]] = defaultdict(list)
        for factor in PriorityFactor.objects.filter(plan_id__in=set(self._plans)).order_by("valid_from"):
            self._factors[factor.plan_id, factor.priority].append(factor)
        self._prices: dict[int, Price] = {}

    def plan_at(self, tenant_id: UUID, moment: datetime) -> PricePlan:
        """The tenant's own plan at a moment, else the default one. Raises ApplicationError if there is none."""
        row = in_force(self._tenant_plans.get(tenant_id, ()), moment)
        plan = self._plans.get(row.plan_id) if row else self._default
        if plan is None:
            raise ApplicationError(code="no_price", status=409, detail=f"There is no plan {DEFAULT_PLAN!r}.")
        return plan

    def version_at(self, tenant_id: UUID, meter: str, moment: datetime) -> PriceVersion:
        """The price valid at a moment. Raises ApplicationError if none is: usage is never silently free."""
        plan = self.plan_at(tenant_id, moment)
        version = in_force(self._versions.get((plan.pk, meter), ()), moment)
        if version is None:
            raise ApplicationError(
                code="no_price",
                status=409,
                detail=f"No price of {meter!r} is valid at {moment.isoformat()} in the plan {plan.code!r}.",
            )
        return version

    def price(self, version: PriceVersion) -> Price:
        """`price_of`, once per version."""
        if version.pk not in self._prices:
            self._prices[version.pk] = price_of(version)
        return self._prices[version.pk]

    def permille_at(self, plan_id: int, priority: int, moment: datetime) -> int:
        """Thousandths of the price that jobs of a priority pay at a moment."""
        factor = in_force(self._factors.get((plan_id, priority), ()), moment)
        return factor.permille if factor else PERMILLE

    @property
    def any_counts_on(self) -> bool:
        """Whether any of these prices depends on the month's running total."""
        return any(version.shape != PriceShape.UNIT for rows in self._versions.values() for version in rows)
