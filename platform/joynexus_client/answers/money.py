"""Usage, prices and money."""

from typing import Any, Literal, TypedDict

UsageGroup = Literal["meter", "job", "day", "project", "key"]


class Money(TypedDict):
    """``amount``: a text of exact digits."""

    amount: str
    currency: str


class UsageRow(TypedDict):
    """One meter of one group. ``free``: parts of the quantity that were not billed, each with its reason."""

    group: str | None
    label: str
    meter: str
    quantity: int
    free: list[dict[str, Any]]
    cost: Money


class Plan(TypedDict):
    """A price plan; ``since`` is None for the default one."""

    code: str
    name: str
    currency: str
    version: int
    since: str | None


class PriceRow(TypedDict):
    """A price for ``per`` units: ended, in force or announced. ``tiers`` of graduated ones count units of a month."""

    meter: str
    shape: Literal["unit", "graduated", "package"]
    per: int
    price: Money
    tiers: list[dict[str, Any]]
    valid_from: str
    valid_until: str | None
    state: Literal["ended", "in_force", "announced"]


class PriceList(TypedDict):
    """What a tenant pays. ``factors``: thousandths of the price that jobs of a priority pay, 1000 if not listed."""

    plan: Plan
    coming_plans: list[Plan]
    results: list[PriceRow]
    factors: list[dict[str, Any]]
