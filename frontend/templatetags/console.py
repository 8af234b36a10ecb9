"""How the console writes figures: money, durations, shares, states, kinds."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html

from frontend.episodes import outcome_tone, outcome_word
from frontend.evaluations import Rate
from frontend.facts import algorithm_word, kind_word, step_word
from jobs.models import Job
from jobs.states import TERMINAL
from tenants.billing.currencies import minor_unit, rounded
from tenants.billing.usage.selectors import Cost, CostLine

register = template.Library()

SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£"}
_NBSP = "\u00a0"

STATE_WORDS = {
    "queued": "Queued",
    "starting": "Starting",
    "running": "Running",
    "cancelling": "Cancelling",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "cancelled": "Cancelled",
}
METER_WORDS = {
    "train.samples": "Training samples",
    "train.compute_us": "Device time",
    "predict.chunks": "Predicted chunks",
    "predict.compute_us": "Predicting",
    "env.steps": "Environment steps",
    "env.compute_us": "Simulating",
}
FREE_WORDS = {  # why work was metered and not billed
    "redone_after_restart": "done again after a restart",
    "environment_lost": "lost with its environment",
    "step_failed": "the step failed",
    "cancelled": "cancelled",
}
ARTIFACT_WORDS = {
    "adapter": "Adapter exported, policy version {version}",
    "evaluation": "Evaluation finished",
    "video": "Video of an episode",
    "dataset": "Dataset recorded",
}


RUN_SLOTS = 10


@register.filter
def run_slot(number: int) -> int:
    """A job's run colour, ``1`` to ``10``: given in order and kept, so that it is the same in every picture."""
    return (number - 1) % RUN_SLOTS + 1


@register.filter
def handle(number: int) -> str:
    """``J-12``: how people name a job of their lab."""
    return f"J-{number}"


def currency_sign(currency: str) -> str:
    """What stands before an amount: ``€``; of a currency without a sign its code and a space."""
    return SYMBOLS.get(currency, f"{currency}{_NBSP}")


@register.filter
def money(cost: Cost | CostLine) -> str:
    """``€0.42``, ``JPY 42``; amounts under one cent keep two significant digits, so that small is not free."""
    return small_amount(cost.amount, cost.currency)


@register.filter
def small_amount(value: Decimal | int, currency: str) -> str:
    """An amount as `money` writes a cost: in it, little is not nothing."""
    amount, sign = Decimal(value), currency_sign(currency)
    if 0 < amount < minor_unit(currency):
        return f"{sign}{amount:.2g}" if amount >= Decimal("0.0001") else f"< {sign}0.0001"
    return f"{sign}{rounded(amount, currency):,}"


@register.filter
def money_whole(amount: Decimal, currency: str) -> str:
    """``€900``: an amount that somebody chose; with cents only if it has some."""
    whole = amount == amount.to_integral_value()
    shown = f"{amount:,.0f}" if whole else f"{rounded(amount, currency):,}"
    return f"{currency_sign(currency)}{shown}"


@register.filter
def quantity(line: CostLine) -> str:
    """A meter's quantity in its own unit."""
    return _counted(line.meter, line.quantity)


@register.filter
def free_notes(line: CostLine) -> list[str]:
    """``12 free: done again after a restart``, one note per reason."""
    return [f"{_counted(line.meter, part.quantity)} free: {_free_word(part.reason)}" for part in line.free]


def _counted(meter: str, count: int) -> str:
    return f"{count / 1e6:,.1f}{_NBSP}s" if meter.endswith("compute_us") else f"{count:,}"


def _free_word(reason: str) -> str:
    return FREE_WORDS.get(reason, reason.replace("_", " "))


@register.filter
def meter_name(code: str) -> str:
    return METER_WORDS.get(code, code)


@register.filter
def state_word(state: str) -> str:
    return STATE_WORDS.get(state, state)


register.filter("kind_word", kind_word)
register.filter("step_word", step_word)
register.filter("algorithm_word", algorithm_word)
register.filter("outcome_word", outcome_word)
register.filter("outcome_tone", outcome_tone)


@register.filter
def decimal(value: float | None) -> str:
    """Three significant digits, thousands with commas; a dash where there is nothing."""
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}".replace("-", "−")


@register.filter
def rate(percent_value: float | None) -> str:
    """``71.4 %`` of a value that is in percent already; a dash where no episode counts."""
    return "–" if percent_value is None else f"{percent_value:.1f}{_NBSP}%"


@register.filter
def interval(own: Rate) -> str:
    """``67.3–75.2``, the Wilson 95 % interval in percent."""
    return "" if own.low is None else f"{own.low:.1f}–{own.high:.1f}"


@register.filter
def percent(share: float | None) -> str:
    """``41.3 %``, or what to say when nothing was measured yet."""
    return "not measured yet" if share is None else f"{share * 100:.1f}{_NBSP}%"


@register.simple_tag
def duration(begin: datetime | None, end: datetime | None) -> str:
    """``2 h 51 min``, ``41 s``; a dash while it has not begun."""
    if begin is None or end is None:
        return "–"
    return _duration(max(end - begin, timedelta(0)))


@register.simple_tag
def age(moment: datetime) -> str:
    """``2 s ago``, by the server's clock; a script lets it grow."""
    span = max(timezone.now() - moment, timedelta(0))
    return format_html('<span data-age="{}">{}</span> ago', int(span.total_seconds()), _duration(span))


@register.filter
def span(length: timedelta) -> str:
    """``6 h 25 min``, ``about`` being said beside it: seconds only below ten minutes."""
    total_s = max(int(length.total_seconds()), 0)
    return _duration(timedelta(seconds=total_s if total_s < 600 else round(total_s / 60) * 60)).replace(
        f" 00{_NBSP}s", ""
    )


@register.filter
def thousands(count: int) -> str:
    """``28,600``."""
    return f"{count:,}"


def _duration(span: timedelta) -> str:
    total_s = int(span.total_seconds())
    hours, rest_s = divmod(total_s, 3600)
    minutes, seconds = divmod(rest_s, 60)
    if hours:
        return f"{hours}{_NBSP}h {minutes}{_NBSP}min"
    return f"{minutes}{_NBSP}min {seconds:02d}{_NBSP}s" if minutes else f"{seconds}{_NBSP}s"


@register.filter
def bytes_size(count: int) -> str:
    """``1.9 MB``, decimal units."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f}{_NBSP}{unit}" if unit == "B" else f"{size:.1f}{_NBSP}{unit}"
        size /= 1000
    raise AssertionError("unreachable")


@register.filter
def has_ended(job: Job) -> bool:
    return job.state in TERMINAL


def artifact_word(kind: str, version: Any) -> str:
    return ARTIFACT_WORDS.get(kind, kind.capitalize()).format(version=version)


@register.filter
def event_words(event: dict[str, Any]) -> str:
    """One line for the time line."""
    data = event["data"]
    match event["type"]:
        case "state":
            return STATE_WORDS.get(str(data.get("state")), str(data.get("state")))
        case "artifact":
            return artifact_word(str(data.get("kind")), data.get("policy_version"))
        case "policy_version":
            return f"Policy version {data.get('version')} stored"
        case "log":
            return str(data.get("message", ""))
    return str(event["type"])


@register.filter
def event_tone(event: dict[str, Any]) -> str:
    """The colour class of an event: its state's, or its log level's."""
    return str(event["data"].get("state") or event["data"].get("level") or "")
