"""How the form of a new job writes amounts and names its fields elsewhere on the page."""

from decimal import Decimal

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from frontend.templatetags.console import currency_sign, small_amount

register = template.Library()
_NBSP = "\u00a0"


@register.simple_tag
def money_range(low: Decimal, high: Decimal, currency: str) -> str:
    """``€0.42–0.61``, one amount where both ends look alike, ``up to €0.61`` where the low end is nothing."""
    first, last = small_amount(low, currency), small_amount(high, currency)
    if first == last:
        return last
    return f"up to {last}" if low == 0 else f"{first}–{last.removeprefix(currency_sign(currency))}"


@register.simple_tag
def times(permille: int) -> str:
    """``1.5 ×``."""
    return f"{permille / 1000:g}{_NBSP}×"


@register.simple_tag
def field_link(labels: dict[str, tuple[str, str]], name: str) -> SafeString | str:
    """The field's label, leading to it."""
    if name not in labels:
        return name
    return format_html('<a href="#{}">{}</a>', *labels[name])
