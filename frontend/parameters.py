"""What sets specifications apart: every setting by its dotted path, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NOT_SETTINGS = ("name", "tags", "cloned_from")  # they say which job it is, not what it does
ABSENT = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One path and its value in each specification; ABSENT where a specification has no such setting."""

    path: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def parameters(specs: Sequence[Mapping[str, Any]]) -> list[Parameter]:
    """All settings of ``specs`` in the order of their paths."""
    flat = [dict(_leaves(spec)) for spec in specs]
    paths = sorted({path for one in flat for path in one} - set(_NOT_SETTINGS))
    return [Parameter(path=path, values=tuple(one.get(path, ABSENT) for one in flat)) for path in paths]


def _leaves(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Lists of plain values are one setting, lists of groups are taken apart."""
    if isinstance(value, Mapping) and value:
        return [leaf for name, part in value.items() for leaf in _leaves(part, f"{path}.{name}" if path else name)]
    if isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        return [leaf for at, part in enumerate(value) for leaf in _leaves(part, f"{path}[{at}]")]
    return [(path, _text(value))]


def _text(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(part) for part in value) or "none"
    return "none" if value == {} else str(value)
