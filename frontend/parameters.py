"""What sets several specifications apart: every setting by its dotted path, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontend.specification import leaves, written

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
    flat = [{path: written(value) for path, value in leaves(spec)} for spec in specs]
    paths = sorted({path for one in flat for path in one} - set(_NOT_SETTINGS))
    return [Parameter(path=path, values=tuple(one.get(path, ABSENT) for one in flat)) for path in paths]
