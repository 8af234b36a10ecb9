"""How the usage pages write figures: ranges, prices by meter, columns of quantities, the tone of a budget."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django import template

from frontend.templatetags.billing import amount
from frontend.templatetags.console import bytes_size, currency_sign, decimal, duration, small_amount
from frontend.usage.meters import Column
from tenants.billing.budgets.reads import BudgetState
from tenants.billing.money import plain
from tenants.billing.usage.selectors import CostLine
from tenants.quotas.models import Resource
from tenants.quotas.outputs import QuotaLine

register = template.Library()

MOVEMENT_WORDS = {
    "payment": "Payment",
    "grant": "Credit given",
    "hold": "Held for",
    "capture": "Usage",
    "release": "Released from",
    "invoice": "Billed on",
    "credit_note": "Credited by",
    "void": "Taken back:",
}
RESOURCE_WORDS = {
    "running_jobs": "Jobs at work",
    "queued_jobs": "Jobs waiting",
    "slots": "Training jobs at work",
    "env_seats": "Environment seats",
    "storage_bytes": "Storage",
    "uploads": "Uploads at once",
    "requests_per_minute": "API requests a minute",
    "compute_s_per_job": "Measured time of a job",
    "compute_s_per_month": "Measured time a month",
    "money_per_month": "Money a month",
}


@register.simple_tag
def amount_span(low: Decimal, high: Decimal, currency: str) -> str:
    """``€690.10–€720.00``; one amount where both are the same to the minor unit."""
    first, last = amount(low, currency), amount(high, currency)
    return first if first == last else f"{first}–{last}"


@register.simple_tag
def told(column: Column, lines: Sequence[CostLine]) -> str:
    """A column's quantity of these lines; empty for none."""
    return column.told(lines)


@register.filter
def price_in(prices: Mapping[str, str], meter: str) -> str:
    """The price in force of a meter."""
    return prices.get(meter, "not priced")


@register.filter
def budget_tone(state: BudgetState) -> str:
    """The colour of a budget's bar: over it, past 80 %, or neither."""
    if state.spent >= state.budget.amount:
        return "failed"
    return "cancelling" if state.spent >= state.budget.amount * Decimal("0.8") else "running"


@register.simple_tag
def change(value: Decimal, currency: str) -> str:
    """What a movement did to an account: ``+€5.00``, ``−€0.0042``; a dash for nothing."""
    if not value:
        return "–"
    size = small_amount(abs(value), currency)
    sign = "+" if value > 0 else "−"
    return f"{size} {'more' if value > 0 else 'less'}" if size.startswith("<") else sign + size


@register.filter
def movement_word(kind: str) -> str:
    return MOVEMENT_WORDS.get(kind, kind)


@register.filter
def resource_word(resource: str) -> str:
    return RESOURCE_WORDS.get(resource, resource.replace("_", " "))


@register.filter
def quota_amount(line: QuotaLine, which: str) -> str:
    """``used`` or ``limit`` of a line in its unit."""
    value = line.limit if which == "limit" else line.used
    if value is None:
        return "–"
    if line.unit == "bytes":
        return bytes_size(value)
    if line.resource == Resource.MONEY_PER_MONTH:
        least = "at least " if which == "used" and value else ""  # cents are not counted there
        return f"{least}{currency_sign(line.unit)}{value:,}"
    if line.unit == "seconds":
        return seconds(value)
    return f"{value:,}\u00a0{line.unit}"


@register.filter
def limit_tone(line: QuotaLine) -> str:
    """The colour of a limit's bar: full, past 80 %, or neither."""
    used, limit = line.used or 0, line.limit or 1
    return "failed" if used >= limit else "cancelling" if used * 10 >= limit * 8 else ""


@register.filter
def budget_amount(value: Decimal | str) -> str:
    """An amount as a field holds it: ``250``, ``99.5``."""
    return plain(value) if isinstance(value, Decimal) else ""


@register.filter
def factor(permille: int) -> str:
    """``1.5 × the price``."""
    return f"{permille / 1000:g} × the price"


@register.filter
def us_time(value: float) -> str:
    """Measured microseconds as people read them: ``12.4 s``, ``4 min 03 s``."""
    return seconds(value / 1e6)


@register.filter
def seconds(value: float | None) -> str:
    """``0.31 s``, ``8.2 s``, ``4 min 03 s``, ``2 h 51 min``."""
    if value is None:
        return "–"
    if not value:
        return "0\u00a0s"
    if value < 60:
        return f"{value:.{2 if value < 1 else 1}f}\u00a0s"
    begin = datetime.fromtimestamp(0, UTC)
    return duration(begin, begin + timedelta(seconds=value))


@register.filter
def mean_of(value: float | None, members: str) -> str:
    """A mean with what it counts; in words where nothing ran."""
    return "nothing ran" if value is None else f"{decimal(value)} {members}"
