"""Policies side by side: what each is and how often it succeeds; where they differ is marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from frontend.evaluations import Protocol
from frontend.measured import Result
from frontend.policies import manifest_facts, policy_facts
from jobs.models import Artifact

_MISSING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One policy."""

    policy: Artifact
    result: Result | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """One fact of every policy, in the order of the columns."""

    label: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FactGroup:
    """Facts under one heading."""

    title: str
    rows: tuple[FactRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``same_protocol``: all results come from the same tasks, seeds and limits, so they can be compared."""

    columns: tuple[Column, ...]
    groups: tuple[FactGroup, ...]
    same_protocol: bool
    overlap: bool  # the intervals of the two best overlap

    @property
    def measured(self) -> int:
        return sum(column.result is not None for column in self.columns)


def comparison_of(policies: Sequence[Artifact], results: Mapping[UUID, Result]) -> Comparison:
    """In the order of ``policies``."""
    columns = tuple(Column(policy=policy, result=results.get(policy.pk)) for policy in policies)
    found = [column.result for column in columns if column.result is not None]
    groups = [_group("Origin", [{fact.label: fact.text for fact in policy_facts(policy)} for policy in policies])]
    told = [{part.title: part.facts for part in manifest_facts(policy)} for policy in policies]
    for title in dict.fromkeys(title for own in told for title in own):
        groups.append(_group(title, [{fact.label: fact.text for fact in own.get(title, ())} for own in told]))
    groups.append(_group("Protocol of the evaluation", [_protocol(column.result) for column in columns]))
    protocols = {tuple(sorted(_protocol(result).items())) for result in found}
    return Comparison(
        columns=columns,
        groups=tuple(group for group in groups if group.rows),
        same_protocol=len(protocols) <= 1,
        overlap=_overlap(found),
    )


def _group(title: str, told: Sequence[Mapping[str, str]]) -> FactGroup:
    labels = dict.fromkeys(label for own in told for label in own)
    rows = (FactRow(label=label, values=tuple(own.get(label, _MISSING) for own in told)) for label in labels)
    return FactGroup(title=title, rows=tuple(rows))


def _protocol(result: Result | None) -> dict[str, str]:
    """What the figures depend on, the policy itself left out."""
    if result is None:
        return {}
    by_task = {line.name: _of_task(line.protocol) for line in result.report.tasks if line.protocol is not None}
    labels = dict.fromkeys(label for told in by_task.values() for label in told)
    told = {label: _over_tasks({name: own.get(label, _MISSING) for name, own in by_task.items()}) for label in labels}
    return {"Tasks": ", ".join(sorted(line.name for line in result.report.tasks))} | told


def _of_task(protocol: Protocol) -> dict[str, str]:
    rows = {name: value for name, value in protocol.rows if name not in {"Adapter", "Policy version"}}
    packages = ", ".join(f"{name} {version}" for name, version in protocol.packages)
    return {"Seeds": protocol.seeds} | rows | {"Packages": packages}


def _over_tasks(values: Mapping[str, str]) -> str:
    """One value where all tasks have it, else that of each."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return "; ".join(f"{task}: {value}" for task, value in sorted(values.items()))


def _overlap(found: Sequence[Result]) -> bool:
    bounds = [
        (rate.percent, rate.low, rate.high)
        for rate in (result.overall.once for result in found)
        if rate.percent is not None and rate.low is not None and rate.high is not None
    ]
    best = sorted(bounds, reverse=True)[:2]
    return len(best) == 2 and best[1][2] >= best[0][1]
