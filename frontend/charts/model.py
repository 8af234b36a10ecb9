"""What a chart is: curves, unit, limit, one line of explanation."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Needs(StrEnum):
    """What a specification must have for a chart to mean anything."""

    NOTHING = ""  # drawn for every job of the kind
    HELD_OUT = "training.holdout_fraction"  # episodes that are not trained on
    RATIO = "algorithm.clip_low"  # an algorithm with clipped probability ratios
    CRITIC = "algorithm.value"  # an algorithm that estimates values
    GROUPS = "algorithm.epsilon"  # GRPO: what copies of one start earned is compared, and may be all alike
    REFERENCE = "algorithm.reference_kl"  # held near the policy it started from


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric series. ``color`` is a run slot of the design language; what is for comparison is drawn dotted.

    ``episodes``: the series with the number of episodes behind a rate; a Wilson 95 % band is drawn around the curve.
    ``more``: series that are added to it, step by step. ``least``: drawn where the chart's ``reach`` is that or more.
    """

    series: str
    label: str
    color: int
    dotted: bool = False
    episodes: str = ""
    more: tuple[str, ...] = ()
    least: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound from the specification, for example ``algorithm.target_kl``: a dotted line with a name."""

    path: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One card. ``scale`` multiplies values (100 for percent); ``smooth`` is off for counts and rates."""

    id: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    smooth: bool = True
    log: bool = False  # may be shown on a logarithmic axis
    percent: bool = False  # the axis runs from 0 to 100
    scale: float = 1.0
    note: str = ""
    limit: Limit | None = None
    needs: Needs = Needs.NOTHING
    reach: str = ""  # path of a number in the specification; curves that begin above it can have no points

    @property
    def words(self) -> str:
        """What a search finds it by."""
        names = (name for curve in self.curves for name in (curve.label, curve.series))
        return " ".join((self.title, self.unit, *names)).lower()

    def applies(self, spec: Mapping[str, Any]) -> bool:
        """False where ``spec`` has nothing this chart could show."""
        return not self.needs or bool(value_at(spec, self.needs))

    def for_spec(self, spec: Mapping[str, Any]) -> "Chart":
        """The chart with the curves that ``spec`` allows."""
        reach = value_at(spec, self.reach) if self.reach else None
        if reach is None:
            return self
        return dataclasses.replace(self, curves=tuple(curve for curve in self.curves if curve.least <= reach))

    def as_json(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """For the script; the limit is the number of this very job, or null."""
        row = dataclasses.asdict(self)
        bound = value_at(spec, self.limit.path) if self.limit else None
        row["limit"] = {"value": bound, "label": self.limit.label} if self.limit and bound is not None else None
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Charts under one heading."""

    title: str
    charts: tuple[Chart, ...]


RELATIVE_TIME = ("@relative", "Relative time")  # since the job started
WALL_TIME = ("@wall", "Wall time")  # in the viewer's zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All charts of one kind. ``unit``: what a step counts; ``x_axes``: (series, words) that may take its place."""

    unit: str
    groups: tuple[Group, ...]
    step: str = "Step"  # ``unit`` as a choice
    x_axes: tuple[tuple[str, str], ...] = ()

    @property
    def axes(self) -> tuple[tuple[str, str], ...]:
        """Everything x may be, as (what the script calls it, words)."""
        return (("", self.step), *self.x_axes, RELATIVE_TIME, WALL_TIME)

    def for_spec(self, spec: Mapping[str, Any]) -> tuple[Group, ...]:
        """The groups with the charts that apply; empty groups are left out."""
        kept = (
            dataclasses.replace(
                group, charts=tuple(chart.for_spec(spec) for chart in group.charts if chart.applies(spec))
            )
            for group in self.groups
        )
        return tuple(group for group in kept if group.charts)


def value_at(spec: Mapping[str, Any], path: str) -> Any:
    """The value under a dotted path; None where a part of the path is missing."""
    value: Any = spec
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
