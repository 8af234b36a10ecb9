"""How the settings write what was done."""

from dataclasses import dataclass
from typing import Any

from django import template

from tenants.audit.models import ActorKind, AuditEvent

register = template.Library()

_LONGEST = 120
_ACTORS = {
    ActorKind.USER: "member",
    ActorKind.KEY: "API key",
    ActorKind.OPERATOR: "operator of the platform",
    ActorKind.SYSTEM: "the platform by itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field of an act; ``before`` is empty where there was nothing, or nothing was told."""

    name: str
    before: str
    after: str


@register.filter
def actor_word(kind: str) -> str:
    return _ACTORS.get(ActorKind(kind), kind)


@register.filter
def changes(event: AuditEvent) -> list[Change]:
    """Field by field: what it was, and what it became."""
    before, after = event.before or {}, event.after or {}
    return [
        Change(
            name=name.replace("_", " "),
            before=_text(before[name]) if name in before else "",
            after=_text(after[name]) if name in after else "",
        )
        for name in dict.fromkeys((*before, *after))
    ]


def _text(value: Any) -> str:
    if value is None:
        text = "none"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, (list, tuple)):
        text = ", ".join(map(str, value)) or "none"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
