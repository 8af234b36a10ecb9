"""What usage must cost, worked out a second time and differently: fractions, no database, no running sums.

The reference of the billing state machine and of the simulated year.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import TypeVar
from uuid import UUID

from tenants.billing.usage.works import MeteredWork

QUANTA = 10**12
T = TypeVar("T")
Tiers = Sequence[tuple[int | None, Decimal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A price: ``tiers`` of (up to unit, amount per ``per``), or one amount; ``package`` counts begun packages."""

    valid_from: datetime
    per: int
    tiers: Tiers
    package: bool = False
    counts_on: bool = False

    def total(self, units: int) -> Fraction:
        """What the first ``units`` of a month cost."""
        if self.package:
            return ceil(Fraction(units, self.per)) * Fraction(self.tiers[0][1])
        cost, floor_units = Fraction(0), 0
        for up_to, amount in self.tiers:
            top = units if up_to is None else min(units, up_to)
            cost += Fraction(max(0, top - floor_units) * Fraction(amount), self.per)
            floor_units = max(floor_units, top)
        return cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """One line of usage with its money and the month whose invoice it is on."""

    work: MeteredWork
    meter: str
    quantity: int
    amount: Decimal
    month: date
    invoiced_in: date


@dataclass(slots=True)
class Oracle:
    """Told the same as the platform, in the same order."""

    offers: defaultdict[tuple[str, str], list[Offer]] = field(default_factory=lambda: defaultdict(list))
    factors: defaultdict[tuple[str, int], list[tuple[datetime, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    plans: defaultdict[UUID, list[tuple[datetime, str]]] = field(default_factory=lambda: defaultdict(list))
    closed: defaultdict[UUID, set[date]] = field(default_factory=lambda: defaultdict(set))
    units: defaultdict[tuple[UUID, str, date], int] = field(default_factory=lambda: defaultdict(int))
    told: dict[tuple[UUID, str], MeteredWork] = field(default_factory=dict)
    owed: list[Owed] = field(default_factory=list)

    def tell(self, work: MeteredWork) -> None:
        """An event; one that was told before has no effect."""
        if work.key in self.told:
            return
        self.told[work.key] = work
        month = work.occurred_at.date().replace(day=1)
        for line in work.lines:
            amount = self._amount(work, line.meter, line.quantity, month) if work.billable else Decimal(0)
            self.owed.append(
                Owed(
                    work=work,
                    meter=line.meter,
                    quantity=line.quantity,
                    amount=amount,
                    month=month,
                    invoiced_in=self._open(work.tenant_id, month),
                )
            )

    def amount_of(self, tenant_id: UUID, *, invoiced_in: date | None = None) -> Decimal:
        """What a tenant owes, in all or on one month's invoice."""
        return sum(
            (
                line.amount
                for line in self.owed
                if line.work.tenant_id == tenant_id and invoiced_in in (None, line.invoiced_in)
            ),
            Decimal(0),
        )

    def _amount(self, work: MeteredWork, meter: str, quantity: int, month: date) -> Decimal:
        plan = _latest(self.plans[work.tenant_id], work.occurred_at, "standard")
        offer = max(
            (offer for offer in self.offers[plan, meter] if offer.valid_from <= work.occurred_at),
            key=lambda offer: offer.valid_from,
        )
        share = Fraction(_latest(self.factors[plan, work.priority], work.occurred_at, 1000), 1000)
        before = self.units[work.tenant_id, meter, month]
        self.units[work.tenant_id, meter, month] += quantity
        start = before if offer.counts_on or offer.package else 0
        quanta = _half_up(offer.total(start + quantity) * share) - _half_up(offer.total(start) * share)
        return Decimal(quanta).scaleb(-12)

    def _open(self, tenant_id: UUID, month: date) -> date:
        while month in self.closed[tenant_id]:
            month = date(month.year + month.month // 12, month.month % 12 + 1, 1)
        return month


def _latest(rows: Sequence[tuple[datetime, T]], moment: datetime, default: T) -> T:
    """The value valid at a moment: of several that began the latest."""
    return max((row for row in rows if row[0] <= moment), key=lambda row: row[0], default=(moment, default))[1]


def _half_up(amount: Fraction) -> int:
    return floor(amount * QUANTA + Fraction(1, 2))
