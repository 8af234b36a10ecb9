"""Money as it is read: costs by meter, and of what was not billed the reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, Sum

from tenants.billing.models import UsageRollup


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Work that was metered and not billed, and why."""

    reason: str
    quantity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One meter's share of a cost. ``amount`` has 12 places; round for display only. ``free``: part of it."""

    meter: str
    quantity: int
    amount: Decimal
    currency: str
    free: tuple[Free, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Priced usage: ``amount == sum(line.amount)``."""

    amount: Decimal
    currency: str
    lines: tuple[CostLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """Quantity and money of one meter within one group. ``label`` is the group in words, where it has any."""

    group: str | UUID | date | None
    line: CostLine
    label: str = ""


def cost_of(rollups: QuerySet[UsageRollup], currency: str) -> Cost:
    """The sum of some rollups, by meter; ``currency`` is the tenant's, for a sum of nothing."""
    return total_of(tuple(line for _, line in lines_of(rollups)), currency)


def lines_of(rollups: QuerySet[UsageRollup], group: str = "") -> Iterator[tuple[Any, CostLine]]:
    """(value of ``group``, line) for every value, meter and currency, in that order."""
    keys = (*([group] if group else []), "meter", "currency")
    rows = rollups.values(*keys, "reason").annotate(units=Sum("quantity"), money=Sum("amount"))
    for key, parts in groupby(rows.order_by(*keys, "reason"), key=lambda row: tuple(row[name] for name in keys)):
        yield key[0], _line(list(parts))


def total_of(lines: tuple[CostLine, ...], currency: str) -> Cost:
    """Lines and their sum, in ``currency`` if there are none. Raises ValueError for several currencies."""
    currencies = {line.currency for line in lines} or {currency}
    if len(currencies) > 1:
        raise ValueError(f"usage in several currencies cannot be added up: {sorted(currencies)}")
    return Cost(amount=sum((line.amount for line in lines), Decimal(0)), currency=currencies.pop(), lines=lines)


def _line(parts: list[dict[str, Any]]) -> CostLine:
    """Of one meter, by what was billed and why not."""
    return CostLine(
        meter=parts[0]["meter"],
        quantity=sum(int(part["units"]) for part in parts),
        amount=sum((part["money"] for part in parts), Decimal(0)),
        currency=parts[0]["currency"],
        free=tuple(Free(reason=part["reason"], quantity=int(part["units"])) for part in parts if part["reason"]),
    )
