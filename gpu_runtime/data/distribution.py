"""How a dataset's values are spread: a histogram per dimension of state and action, and the lengths of its episodes.

Shapes: N frames, D dimensions. Values are raw units; every frame counts once.
"""

from typing import Any

import numpy as np

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.normalize import NormalizationMode, Normalizer
from gpu_runtime.data.statistics import vector_statistics
from gpu_runtime.protocol.schema import VectorFeature

BINS = 32
LENGTH_BINS = 24


def distribution(dataset: LeRobotDataset) -> dict[str, Any]:
    """Of a valid dataset: ``state`` (None: it has none) and ``action`` per dimension, ``lengths`` and ``tasks``."""
    states_NS, schema = dataset.states_NS(), dataset.schema
    return {
        "state": None if states_NS is None or schema.state is None else _dimensions(schema.state, states_NS),
        "action": _dimensions(schema.action, dataset.actions_NA()),
        "lengths": _lengths(dataset.lengths),
        "tasks": _tasks(dataset),
    }


def _dimensions(feature: VectorFeature, values_ND: np.ndarray) -> list[dict[str, Any]]:
    """Per dimension ``counts`` in equal bins from ``low`` to ``high``, whether it is ``degenerate`` (too still to be
    scaled), the share ``outside`` q01..q99, and ``farthest``: the greatest distance from 0 in units where q01..q99 is
    -1..1 (None for a degenerate one).
    """
    normalizer = Normalizer.from_statistics(vector_statistics(values_ND), NormalizationMode.QUANTILE, feature.names)
    outside_D = normalizer.out_of_range(values_ND)
    return [
        _dimension(name, values_ND[:, dim].astype(np.float64))
        | {
            "degenerate": bool(normalizer.degenerate_D[dim]),
            "outside": _rounded(outside_D[dim]),
            "farthest": _farthest(normalizer, values_ND[:, dim], dim),
        }
        for dim, name in enumerate(feature.names)
    ]


def _dimension(name: str, values_N: np.ndarray) -> dict[str, Any]:
    low, high = float(values_N.min()), float(values_N.max())
    if not high > low:
        return {"name": name, "low": low, "high": high, "counts": [len(values_N)]}
    counts, _ = np.histogram(values_N, bins=BINS, range=(low, high))
    return {"name": name, "low": low, "high": high, "counts": counts.tolist()}


def _farthest(normalizer: Normalizer, values_N: np.ndarray, dim: int) -> float | None:
    if normalizer.degenerate_D[dim]:
        return None
    scaled = (values_N.astype(np.float64) - normalizer.center_D[dim]) / normalizer.scale_D[dim]
    return _rounded(np.abs(scaled).max())


def _lengths(lengths: tuple[int, ...]) -> dict[str, Any]:
    """Episodes per bin of whole frames: ``starts`` of the bins, all of one ``width``."""
    low, high = min(lengths), max(lengths)
    width = max(1, -(-(high - low + 1) // LENGTH_BINS))
    starts = list(range(low, high + 1, width))
    counts = np.bincount([(length - low) // width for length in lengths], minlength=len(starts))
    return {"starts": starts, "width": width, "counts": counts.tolist()}


def _tasks(dataset: LeRobotDataset) -> list[dict[str, Any]]:
    """Episodes per instruction, most first."""
    episodes: dict[str, int] = {}
    for episode in dataset.episodes:
        episodes[episode.task] = episodes.get(episode.task, 0) + 1
    return [{"task": task, "episodes": count} for task, count in sorted(episodes.items(), key=lambda row: -row[1])]


def _rounded(value: Any) -> float:
    return float(f"{value:.6g}")
