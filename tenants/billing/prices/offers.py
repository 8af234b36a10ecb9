"""A price as somebody writes it down: validated, before it is announced or tried on a month."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tenants.billing.models import PriceShape
from tenants.billing.money import to_quantum
from tenants.billing.prices.pricing import Price
from tenants.billing.prices.tiers import fault, tiers_parse
from tenants.errors import ApplicationError, FieldError

AMOUNT_MAX = Decimal(1_000_000)  # below it
PER_MAX = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A price that makes sense. ``price.amount`` of a graduated one is its first tier's."""

    price: Price

    @property
    def tiers_json(self) -> list[dict[str, Any]]:
        return [{"up_to": tier.up_to, "amount": f"{tier.amount:f}"} for tier in self.price.tiers]

    def as_json(self) -> dict[str, Any]:
        price = self.price
        return {
            "shape": price.shape.value,
            "amount": f"{price.amount:f}",
            "per": price.per,
            "tiers": self.tiers_json,
        }


def offer_of(*, shape: str, amount: Decimal | None, per: int, tiers: Sequence[dict[str, Any]] = ()) -> Offer:
    """A checked price: of a unit or package one ``amount``; graduated ones have ``tiers`` and no amount of their own.

    Raises ApplicationError `price_invalid` or `tiers_invalid` (422), naming each field at fault.
    """
    if shape not in PriceShape.values:
        raise _refused([fault("/shape", "unknown_shape", f"Shape {shape!r} is not one of {PriceShape.values}.")])
    faults = []
    if isinstance(per, bool) or not 1 <= per <= PER_MAX:
        faults.append(fault("/per", "per_range", f"A price is per 1 to {PER_MAX} units; got {per}."))
    if shape == PriceShape.GRADUATED:
        parsed = tiers_parse(tiers)
        if amount not in (None, parsed[0].amount):
            detail = f"A graduated price has amounts in its tiers only, the first {parsed[0].amount}; got {amount}."
            faults.append(fault("/amount", "amount_beside_tiers", detail))
        amount = parsed[0].amount
    else:
        parsed = ()
        if tiers:
            faults.append(fault("/tiers", "tiers_not_wanted", f"A price of the shape {shape!r} has no tiers."))
        faults += _amount_faults(amount)
    if faults or amount is None:
        raise _refused(faults)
    return Offer(price=Price(shape=PriceShape(shape), amount=amount, per=per, tiers=parsed))


def _amount_faults(amount: Decimal | None) -> list[FieldError]:
    if amount is not None and amount.is_finite() and 0 <= amount < AMOUNT_MAX and amount == to_quantum(amount):
        return []
    detail = f"An amount is at least 0, below {AMOUNT_MAX} and has at most 12 decimals; got {amount}."
    return [fault("/amount", "amount_range", detail)]


def _refused(faults: list[FieldError]) -> ApplicationError:
    return ApplicationError(
        code="price_invalid", status=422, detail=" ".join(fault.detail for fault in faults), errors=tuple(faults)
    )
