"""How the operators' screens write figures: money, bytes, ages, quantities."""

from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from django import template
from django.utils import timezone

from tenants.billing.currencies import minor_unit
from tenants.billing.money import plain
from tenants.models import DEFAULT_CURRENCY

register = template.Library()

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_AGE_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@register.filter
def amount(value: Decimal | None, currency: str = "") -> str:
    """``1,234.50 EUR``, ``1,234 JPY``. What is not zero never looks like it: two significant digits are kept."""
    if value is None:
        return "–"
    unit = minor_unit(currency or DEFAULT_CURRENCY)
    small = value != 0 and abs(value) < unit
    text = f"{_significant(value):f}" if small else f"{value.quantize(unit, ROUND_HALF_UP):,}"
    return f"{text} {currency}".strip().replace("-", "\N{MINUS SIGN}")


@register.filter
def exact(value: Decimal) -> str:
    """A price in full, without trailing zeros."""
    return plain(value)


@register.filter
def byte_size(value: int | None) -> str:
    """Decimal units, three digits."""
    if value is None:
        return "–"
    size, unit = float(value), 0
    while size >= 1000 and unit < len(_BYTE_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_BYTE_UNITS[unit]}" if unit else f"{value} B"


@register.filter
def age(value: datetime | timedelta | None) -> str:
    """How long ago, or how long, in its largest unit: ``3 min``."""
    if value is None:
        return "never"
    span = timezone.now() - value if isinstance(value, datetime) else value
    seconds = max(0, int(span.total_seconds()))
    for length, unit in _AGE_UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return "0 s"


@register.filter
def grouped(value: Any) -> str:
    """``12,345``"""
    return "–" if value is None else f"{value:,}"


@register.filter
def percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.0f} %"


def _significant(value: Decimal) -> Decimal:
    return value.quantize(Decimal(1).scaleb(value.adjusted() - 1))
