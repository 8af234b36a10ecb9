"""How a job's page writes amounts, spans and levels."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django import template

from frontend.spending import Range
from frontend.templatetags.console import currency_sign, duration, small_amount

register = template.Library()

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE_FROM = 20  # from here on a range is told without cents


@register.filter
def amount_range(value: Range, currency: str) -> str:
    """``€56–61``; one amount where both ends are written alike."""
    if value.low >= _WHOLE_FROM and round(value.low) != round(value.high):
        low, high = small_amount(round(value.low), currency), small_amount(round(value.high), currency)
        return f"{low.removesuffix('.00')}–{_bare(high, currency).removesuffix('.00')}"
    low, high = small_amount(value.low, currency), small_amount(value.high, currency)
    return f"about {low}" if low == high else f"{low}–{_bare(high, currency)}"


@register.filter
def lasting(value: timedelta) -> str:
    """``2 h 51 min``, ``41 s``."""
    return duration(_EPOCH, _EPOCH + value)


@register.filter
def event_detail(event: dict[str, Any]) -> str:
    """The line under an event; empty where its words say everything."""
    data = event["data"]
    match event["type"]:
        case "state":
            return str(data.get("message") or data.get("reason") or "")
        case "policy_version":
            return f"Step {data.get('step')}"
        case "artifact":
            return str(data.get("name") or "")
    return ""


def _bare(text: str, currency: str) -> str:
    """Without the currency's sign, unless the text is more than a sign and a number."""
    return text.removeprefix(currency_sign(currency))
