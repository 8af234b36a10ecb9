"""How many decimal places money of a currency is shown and paid in."""

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

from tenants.errors import invalid

MINOR_PLACES = {"CHF": 2, "CNY": 2, "EUR": 2, "GBP": 2, "JPY": 0, "USD": 2}


def rounded(amount: Decimal, currency: str) -> Decimal:
    """To the minor unit, half up (away from zero). Raises ValueError for a currency that is not in the table."""
    return amount.quantize(minor_unit(currency), ROUND_HALF_UP)


def rounded_down(amount: Decimal, currency: str) -> Decimal:
    """What of an amount can be paid out: whole minor units."""
    return amount.quantize(minor_unit(currency), ROUND_DOWN)


def is_payable(amount: Decimal, currency: str) -> bool:
    """True if an amount is whole minor units."""
    return amount == rounded_down(amount, currency)


def require_payable(amount: Decimal, currency: str, *, at_most: Decimal) -> None:
    """Refuse an amount that nobody can pay. Raises ApplicationError 422 at /amount with what is allowed."""
    if not amount.is_finite() or not 0 < amount <= at_most or not is_payable(amount, currency):
        allowed = f"more than 0, at most {at_most}, in whole minor units of {currency}"
        raise invalid("/amount", "amount_invalid", f"Allowed is {allowed}; got {amount}.")


def minor_unit(currency: str) -> Decimal:
    """The smallest amount that can be paid: a cent, a yen. Raises ValueError for a currency not in the table."""
    if currency not in MINOR_PLACES:
        raise ValueError(f"currency {currency!r} is not one of {sorted(MINOR_PLACES)}")
    return Decimal(1).scaleb(-MINOR_PLACES[currency])
