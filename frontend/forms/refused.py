"""Where on the form a refusal belongs: from JSON pointers to names of fields."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """``fields``: name of a field -> sentence. ``loose``: sentences for which the form has no field."""

    fields: dict[str, str]
    loose: tuple[str, ...]


def placed(refused: Mapping[str, str], names: Collection[str]) -> Placed:
    """Each sentence at its field, at what the field is part of, or else loose; the first one per field stays."""
    fields: dict[str, str] = {}
    loose = []
    for pointer, sentence in refused.items():
        name = _nearest(pointer, names)
        if name:
            fields.setdefault(name, sentence)
        else:
            loose.append(sentence)
    return Placed(fields=fields, loose=tuple(loose))


def _nearest(pointer: str, names: Collection[str]) -> str:
    """``/unexplored/0`` is ``unexplored``, ``/head`` is the choice ``head.type``."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.lstrip("/").split("/")]
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in names:
            return name
    below = ".".join(parts) + "."
    return next((name for name in names if name.startswith(below)), "")
