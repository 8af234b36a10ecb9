"""How pages of datasets write their figures."""

from typing import Any

from django import template

register = template.Library()

_NBSP = "\u00a0"
STATE_WORDS = {"received": "Received", "validating": "Validating", "ready": "Ready", "invalid": "Invalid"}
STATE_TONES = {"received": "queued", "validating": "running", "ready": "succeeded", "invalid": "failed"}


@register.filter
def version_word(state: str) -> str:
    return STATE_WORDS.get(state, state)


@register.filter
def version_tone(state: str) -> str:
    """The job state whose colour and icon it has."""
    return STATE_TONES.get(state, "queued")


@register.filter
def recorded_time(facts: dict[str, Any]) -> str:
    """``8 h 50 min`` of recording: frames at the control frequency."""
    total_s = facts["frames"] / facts["schema"]["control_hz"]
    if total_s < 60:
        return f"{total_s:.1f}{_NBSP}s"
    minutes = round(total_s / 60)
    return f"{minutes // 60}{_NBSP}h {minutes % 60}{_NBSP}min" if minutes >= 60 else f"{total_s / 60:.1f}{_NBSP}min"


@register.filter
def figure(value: float) -> str:
    """``0.066``, ``−1.2``, ``4.1e−08``: three decimals, or three significant digits where those would say nothing."""
    size = abs(value)
    text = f"{value:.2e}" if 0 < size < 0.001 or size >= 1e6 else f"{value:,.3f}" if size < 100 else f"{value:,.1f}"
    return text.replace("-", "−")


@register.filter
def hertz(value: float) -> str:
    return f"{value:g}{_NBSP}Hz"


@register.filter
def camera_name(key: str) -> str:
    """``front`` of ``observation.images.front``."""
    return key.removeprefix("observation.images.") or key
