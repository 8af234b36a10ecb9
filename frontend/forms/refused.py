"""Where on the form a refusal belongs: from JSON pointers to names of fields."""

from collections.abc import Collection
from dataclasses import dataclass

from tenants.errors import ApplicationError

_NEEDED = "This field is needed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """``fields``: name of a field -> sentence. ``missing``: those of them that only have to be filled in.

    ``loose``: sentences for which the form has no field.
    """

    fields: dict[str, str]
    missing: frozenset[str]
    loose: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.fields) + len(self.loose)


NOTHING = Placed(fields={}, missing=frozenset(), loose=())


def placed(error: ApplicationError, names: Collection[str]) -> Placed:
    """Each sentence at its field, at what the field is part of, or else loose; the first one per field stays."""
    fields: dict[str, str] = {}
    missing: set[str] = set()
    loose: list[str] = []
    for one in error.errors:
        if one.code == "too_short" and any(other.pointer.startswith(f"{one.pointer}/") for other in error.errors):
            continue  # of a list whose rows are refused themselves
        name = _nearest(one.pointer, names)
        if not name:
            loose.append(one.detail)
        elif name not in fields:
            fields[name] = _NEEDED if one.code == "missing" else one.detail
            missing.update({name} if one.code == "missing" else ())
    return Placed(fields=fields, missing=frozenset(missing), loose=tuple(loose if error.errors else [error.detail]))


def _nearest(pointer: str, names: Collection[str]) -> str:
    """``/unexplored/0`` is ``unexplored``, ``/head`` is the choice ``head.type``."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.lstrip("/").split("/")]
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in names:
            return name
    below = ".".join(parts) + "."
    return next((name for name in names if name.startswith(below)), "")
