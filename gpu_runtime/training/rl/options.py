"""Options of an algorithm: a small frozen config that refuses, by name, what does not apply or makes no sense."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

from gpu_runtime.training.rl.errors import OptionRefused


class AlgorithmConfig(Protocol):
    """A frozen dataclass of options, checked in its ``__post_init__``."""

    algorithm: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


Config = TypeVar("Config", bound=AlgorithmConfig)
Member = TypeVar("Member", bound=StrEnum)


def configure(config_class: type[Config], options: Mapping[str, Any]) -> Config:
    """Build a config from a job's options. Raises OptionRefused for one that the algorithm does not have or lacks."""
    known = {f.name: f for f in fields(config_class)}
    for option in options:
        if option not in known:
            raise OptionRefused(
                option, f"{option} does not apply to {config_class.algorithm}; its options: {', '.join(sorted(known))}"
            )
    for name, option_field in known.items():
        if name not in options and option_field.default is MISSING:
            raise OptionRefused(name, f"{config_class.algorithm} needs the option {name}")
    return config_class(**options)


def check_number(
    option: str, value: object, *, above: float | None = None, at_least: float | None = None, at_most: float = math.inf
) -> None:
    """Raise OptionRefused unless the value is a finite number within the bounds (``above`` excludes its bound)."""
    bounds = {"above": above, "at least": at_least, "at most": None if at_most == math.inf else at_most}
    told = [f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None]
    expected = " ".join(["a finite number", " and ".join(told)]).strip()
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if (
        not number
        or (above is not None and value <= above)  # type: ignore[operator]
        or (at_least is not None and value < at_least)  # type: ignore[operator]
        or value > at_most  # type: ignore[operator]
    ):
        raise refusal(option, value, expected)


def member(option: str, value: object, kind: type[Member]) -> Member:
    """The member of an enum that the value names. Raises OptionRefused listing all members."""
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError as error:
        raise refusal(option, value, "one of " + ", ".join(kind)) from error


def refusal(option: str, value: object, expected: str) -> OptionRefused:
    return OptionRefused(option, f"{option} = {value!r} is not allowed; expected {expected}")
