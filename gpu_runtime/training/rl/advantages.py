"""From a batch of whole episodes to rows an update learns from.

Shapes: N chunks, C executed actions per chunk.
"""

from collections.abc import Sequence

import numpy as np

from gpu_runtime.protocol.algorithms import AlgorithmSpec
from gpu_runtime.training.rl.batch import RlBatch, empty_batch, stacked
from gpu_runtime.training.rl.errors import RolloutMismatch
from gpu_runtime.training.rl.experience import Decision, Episode, Experience
from gpu_runtime.training.rl.methods.base import Advantages
from gpu_runtime.training.rl.methods.registry import method_of

__all__ = ["Advantages", "assemble", "estimate", "needs_final_value", "rollout_metrics"]


def needs_final_value(algorithm: AlgorithmSpec, *, terminated: bool, truncated: bool) -> bool:
    """True if an episode that ended so must carry V(final observation)."""
    return method_of(algorithm).needs_final_value(terminated=terminated, truncated=truncated)


def estimate(algorithm: AlgorithmSpec, episodes: Sequence[Episode]) -> Advantages:
    """Advantages of every decision, episode after episode. Raises RolloutMismatch or NonFiniteReward."""
    return method_of(algorithm).estimate(Experience.of(episodes))


def assemble(algorithm: AlgorithmSpec, episodes: Sequence[Episode]) -> RlBatch:
    """Estimate and flatten. Chunks of which nothing is learned (filtered groups) are left out; maybe all are.

    Raises RolloutMismatch or NonFiniteReward.
    """
    if not any(episode.decisions for episode in episodes):
        return empty_batch()
    found = estimate(algorithm, episodes)
    kept = np.flatnonzero(found.mask_NC.any(axis=1))
    if not len(kept):
        return empty_batch(found.mask_NC.shape[1], found.statistics)
    every = [(index, decision) for index, episode in enumerate(episodes) for decision in episode.decisions]
    decisions = [every[row][1] for row in kept]
    _require_alike(decisions)
    return RlBatch(
        images=_images(decisions),
        instructions=tuple(decision.feature.instruction for decision in decisions),
        state_NS=stacked([decision.state_S for decision in decisions], "state"),
        handles=tuple(decision.handle for decision in decisions),
        trace=_trace(decisions),
        value_N=_numbers([decision.value for decision in decisions], "value"),
        progress_N=_numbers([decision.progress for decision in decisions], "progress"),
        advantage_N=found.advantage_N[kept],
        returns_N=None if found.returns_N is None else found.returns_N[kept],
        mask_NC=found.mask_NC[kept],
        version_N=np.array([decision.version for decision in decisions], np.int64),
        episode_N=np.array([every[row][0] for row in kept], np.int64),
        statistics=dict(found.statistics),
    )


def _require_alike(decisions: Sequence[Decision]) -> None:
    views = {len(decision.feature.images) for decision in decisions}
    traces = {tuple(sorted(decision.trace)) for decision in decisions}
    if len(views) > 1 or len(traces) > 1:
        raise RolloutMismatch(f"decisions: {sorted(views)} views, traces {sorted(traces)}; allowed: all alike")


def _images(decisions: Sequence[Decision]) -> tuple[np.ndarray, ...]:
    """One array per view, uint8 [N, H, W, 3]."""
    views = [[decision.feature.images[v] for decision in decisions] for v in range(len(decisions[0].feature.images))]
    return tuple(array for v, view in enumerate(views) if (array := stacked(view, f"images[{v}]")) is not None)


def _trace(decisions: Sequence[Decision]) -> dict[str, np.ndarray]:
    columns = {name: [decision.trace[name] for decision in decisions] for name in decisions[0].trace}
    found = {name: stacked(column, f"trace[{name!r}]") for name, column in columns.items()}
    return {name: array for name, array in found.items() if array is not None}


def _numbers(values: Sequence[float | None], name: str) -> np.ndarray | None:
    column = stacked(values, name)
    return None if column is None else column.astype(np.float32)


def rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over these episodes, and their counts; ``rollout/env_steps`` is of this batch alone."""
    values = {
        "return": [episode.env_return for episode in episodes],
        "shaped_return": [episode.shaped_return for episode in episodes],
        "success_once": [float(episode.success_once) for episode in episodes],
        "success_at_end": [float(episode.success_at_end) for episode in episodes],
        "episode_steps": [float(episode.steps) for episode in episodes],
    }
    means = {f"rollout/{name}": float(np.mean(column)) for name, column in values.items() if column}
    return means | {
        "rollout/episodes": float(len(episodes)),
        "rollout/env_steps": float(sum(episode.steps for episode in episodes)),
        "rollout/distinct_starts": float(len({episode.initial_state for episode in episodes})),
    }
