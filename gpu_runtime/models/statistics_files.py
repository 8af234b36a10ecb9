"""Normalisation statistics as other stacks read them: norm_stats.json (openpi), dataset_statistics.json (StarVLA)."""

import json
from pathlib import Path
from typing import Any

from gpu_runtime.data.normalize import Normalizer
from gpu_runtime.models.errors import StatisticsAltered, StatisticsMissing
from gpu_runtime.models.folders import write_json
from gpu_runtime.protocol.schema import DatasetStatistics, VectorStatistics

OPENPI = "norm_stats.json"
STARVLA = "dataset_statistics.json"
NAMES = (OPENPI, STARVLA)
_ALL = ("mean", "std", "min", "max", "q01", "q99")


def write_statistics(
    folder: Path, statistics: DatasetStatistics, *, key: str, actions: Normalizer, states: Normalizer | None
) -> None:
    """Write both files; ``key`` is StarVLA's un-normalisation key."""
    write_json(folder / OPENPI, _openpi(statistics))
    groups: dict[str, Any] = {"action": _starvla(statistics.action, (~actions.degenerate_D).tolist())}
    if statistics.state is not None:
        mask = [True] * len(statistics.state.mean) if states is None else (~states.degenerate_D).tolist()
        groups["state"] = _starvla(statistics.state, mask)
    write_json(folder / STARVLA, {key: groups | {"num_transitions": statistics.frames}})


def read_statistics(folder: Path, *, key: str, expected_hash: str) -> DatasetStatistics:
    """Read them back. Raises StatisticsMissing, or StatisticsAltered unless both files hold what the hash names."""
    if missing := [name for name in NAMES if not (folder / name).is_file()]:
        raise StatisticsMissing(f"{missing[0]} is not in the folder; a policy without statistics is not run")
    try:
        group = json.loads((folder / STARVLA).read_text("utf-8"))[key]
        statistics = DatasetStatistics(
            state=_vector(group["state"]) if "state" in group else None,
            action=_vector(group["action"]),
            frames=group["num_transitions"],
        )
        openpi = json.loads((folder / OPENPI).read_text("utf-8"))
        found = statistics.hash  # ValueError for NaN
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StatisticsAltered(f"{STARVLA}: {type(error).__name__}: {error}") from error
    if found != expected_hash:
        raise StatisticsAltered(f"{STARVLA}: hash {found}, allowed: {expected_hash}")
    if openpi != _openpi(statistics):
        raise StatisticsAltered(f"{OPENPI}: differs from {STARVLA}")
    return statistics


def _openpi(statistics: DatasetStatistics) -> dict[str, Any]:
    groups = {"actions": statistics.action} | ({"state": statistics.state} if statistics.state is not None else {})
    fields = ("mean", "std", "q01", "q99")
    return {"norm_stats": {name: {f: list(getattr(group, f)) for f in fields} for name, group in groups.items()}}


def _starvla(statistics: VectorStatistics, mask: list[bool]) -> dict[str, Any]:
    return {name: list(getattr(statistics, name)) for name in _ALL} | {"mask": mask}


def _vector(raw: dict[str, Any]) -> VectorStatistics:
    return VectorStatistics(**{name: tuple(raw[name]) for name in _ALL})
