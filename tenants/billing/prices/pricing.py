"""How a quantity becomes money: pure and exact. Integers of 10^-12 throughout; no clock, no database.

A charge is the difference of two running totals, each rounded once to 12 places. So a month's charges add up to the
price of the month's quantity, however the quantity was split and in whichever order its parts came.
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from tenants.billing.models.prices import PriceShape
from tenants.billing.money import PLACES, to_quantum

PERMILLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Units up to the ``up_to``-th of the month (included) cost ``amount`` per ``Price.per``; None: all the rest."""

    up_to: int | None
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price as it is reckoned with. ``tiers`` only for graduated ones, whose ``amount`` is the first tier's."""

    shape: PriceShape
    amount: Decimal
    per: int
    tiers: tuple[Tier, ...] = ()

    @property
    def counts_on(self) -> bool:
        """Whether what a unit costs depends on how many came before it in the month."""
        return self.shape != PriceShape.UNIT


def charge(price: Price, quantity: int, *, before: int = 0, permille: int = PERMILLE) -> Decimal:
    """What ``quantity`` more units cost after ``before`` of the same month, for ``permille`` thousandths of the price.

    12 places, never negative. A unit price does not look at ``before``: each call is rounded by itself, so parts add
    up exactly wherever the price of one unit has at most 12 places (all default prices), else to half a 10^-12 each.
    Raises ValueError for negative arguments.
    """
    if quantity < 0 or before < 0 or permille < 0:
        raise ValueError(f"a charge needs counts of at least 0; got {quantity=}, {before=}, {permille=}")
    start = before if price.counts_on else 0
    quanta = _total(price, start + quantity, permille) - _total(price, start, permille)
    return Decimal(quanta).scaleb(-PLACES)


def is_exact(price: Price, permille: int = PERMILLE) -> bool:
    """Whether a unit price charges any number of parts exactly like their sum: one unit has at most 12 places."""
    return not price.counts_on and (_quanta(price.amount) * permille) % (price.per * PERMILLE) == 0


def _total(price: Price, units: int, permille: int) -> int:
    """10^-12 of money for the first ``units`` units of a month, rounded half up."""
    if price.shape == PriceShape.PACKAGE:
        packages = -(-units // price.per)
        return _half_up(packages * _quanta(price.amount) * permille, PERMILLE)
    tiers = price.tiers or (Tier(up_to=None, amount=price.amount),)
    weighted = _by_tier(tiers, units)
    return _half_up(weighted * permille, price.per * PERMILLE)


def _by_tier(tiers: tuple[Tier, ...], units: int) -> int:
    """Sum over tiers of units in the tier times its amount in 10^-12."""
    weighted = floor = 0
    for tier in tiers:
        top = units if tier.up_to is None else min(units, tier.up_to)
        if top <= floor:
            break
        weighted += (top - floor) * _quanta(tier.amount)
        floor = top
    return weighted


@lru_cache(maxsize=4096)  # of the few amounts that price lists have
def _quanta(amount: Decimal) -> int:
    return int(to_quantum(amount).scaleb(PLACES))


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
