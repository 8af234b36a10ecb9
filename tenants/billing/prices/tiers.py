"""The tiers of a graduated price, from the JSON that is stored: validated whole, every fault named."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from tenants.billing.prices.pricing import Tier
from tenants.errors import ApplicationError, FieldError

TIERS_MAX = 20
UNITS_MAX = 2**62  # a bound beyond this is no bound
_AMOUNT = re.compile(r"\d{1,6}(\.\d{1,12})?")


def tiers_parse(tiers: object) -> tuple[Tier, ...]:
    """Tiers out of JSON: `[{"up_to": 1000, "amount": "0.05"}, {"up_to": null, "amount": "0.03"}]`.

    Bounds are whole and rising, only the last one is null, amounts are texts of digits. Raises ApplicationError
    `tiers_invalid` (422) with one FieldError per fault.
    """
    if not isinstance(tiers, Sequence) or isinstance(tiers, str) or not 1 <= len(tiers) <= TIERS_MAX:
        shown = len(tiers) if isinstance(tiers, Sequence) else type(tiers).__name__
        raise _refused([fault("/tiers", "tiers_count", f"A list of 1 to {TIERS_MAX} tiers is needed; got {shown}.")])
    faults: list[FieldError] = []
    parsed: list[Tier] = []
    floor = 0
    for index, item in enumerate(tiers):
        at = f"/tiers/{index}"
        if not isinstance(item, Mapping) or set(item) != {"up_to", "amount"}:
            faults.append(fault(at, "tier_fields", "A tier has exactly the fields up_to and amount."))
            continue
        faults += _bound_faults(item["up_to"], at, floor, is_last=index == len(tiers) - 1)
        faults += _amount_faults(item["amount"], at)
        if not faults:
            parsed.append(Tier(up_to=item["up_to"], amount=Decimal(item["amount"])))
            floor = item["up_to"] or floor
    if faults:
        raise _refused(faults)
    return tuple(parsed)


def _bound_faults(up_to: Any, at: str, floor: int, *, is_last: bool) -> list[FieldError]:
    pointer = f"{at}/up_to"
    if is_last:
        ok = up_to is None
        return [] if ok else [fault(pointer, "tier_last_open", f"The last tier has up_to null; got {up_to!r}.")]
    if not isinstance(up_to, int) or isinstance(up_to, bool) or not floor < up_to <= UNITS_MAX:
        detail = f"Bounds are whole numbers and rise: between {floor + 1} and {UNITS_MAX}; got {up_to!r}."
        return [fault(pointer, "tier_bound_not_rising", detail)]
    return []


def _amount_faults(amount: Any, at: str) -> list[FieldError]:
    if isinstance(amount, str) and _AMOUNT.fullmatch(amount):
        return []
    detail = f"An amount is a text of digits below 1,000,000 with at most 12 decimals; got {amount!r}."
    return [fault(f"{at}/amount", "tier_amount_invalid", detail)]


def fault(pointer: str, code: str, detail: str) -> FieldError:
    """One refused field of a price."""
    return FieldError(pointer=pointer, code=code, detail=detail)


def _refused(faults: list[FieldError]) -> ApplicationError:
    return ApplicationError(
        code="tiers_invalid", status=422, detail=" ".join(fault.detail for fault in faults), errors=tuple(faults)
    )
