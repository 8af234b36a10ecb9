"""Episodes as a rollout played them, and the same in time-first tensors as the algorithms want them.

Shapes: S state dims, C executed actions per chunk; n decisions in time, B episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.training.rl.errors import RolloutMismatch, require_shape
from gpu_runtime.training.rl.rollout import Rollout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """One chunk: what was seen, what was done, what it paid. ``trace`` is one sample's, without a batch dimension."""

    feature: VLAFeature
    state_S: np.ndarray | None  # raw units
    handle: str  # of its prefix features; "": they were not kept
    trace: Mapping[str, np.ndarray]
    value: float | None  # the critic's, of the policy version that acted
    progress: float | None  # share of the step limit that had passed, for a critic that is told it
    version: int  # policy version that acted
    rewards_C: np.ndarray  # shaped; zero behind the executed steps
    executed: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """A whole episode, in order. Raises RolloutMismatch for one that did not end, or whose decisions can't be its."""

    seed: int
    group: int  # reset id: episodes that share it started alike
    decisions: tuple[Decision, ...]
    terminated: bool
    truncated: bool
    success_once: bool
    success_at_end: bool
    env_return: float  # as the environment pays it
    steps: int
    final_value: float | None  # V(final observation), where the algorithm asks for it
    initial_state: str  # fingerprint

    def __post_init__(self) -> None:
        if not (self.terminated or self.truncated):
            raise RolloutMismatch(f"episode of seed {self.seed}: neither terminated nor truncated")
        if (played := sum(decision.executed for decision in self.decisions)) != self.steps:
            raise RolloutMismatch(f"episode of seed {self.seed}: {self.steps} steps, its decisions took {played}")
        for index, decision in enumerate(self.decisions):
            require_shape(f"decisions[{index}].rewards", decision.rewards_C.shape, self.decisions[0].rewards_C.shape)
            if not 1 <= decision.executed <= len(decision.rewards_C):
                raise RolloutMismatch(
                    f"decisions[{index}].executed: {decision.executed}, allowed: 1 to {len(decision.rewards_C)}"
                )

    @property
    def shaped_return(self) -> float:
        """Sum of the rewards that training sees."""
        return float(sum(decision.rewards_C[: decision.executed].sum() for decision in self.decisions))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Experience:
    """Episodes side by side: column b of every tensor is episode b, row n its n-th decision."""

    episodes: tuple[Episode, ...]
    rollout: Rollout
    groups_B: Tensor

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "Experience":
        """At least one decision in all. Raises RolloutMismatch, or NonFiniteReward for a reward that is no number."""
        chunks = max((len(episode.decisions) for episode in episodes), default=0)
        if not chunks:
            raise RolloutMismatch("episodes: no decision in them, allowed: at least one")
        steps = {len(decision.rewards_C) for episode in episodes for decision in episode.decisions}
        if len(steps) > 1:
            raise RolloutMismatch(f"rewards: chunks of {sorted(steps)} steps, allowed: one length")
        rewards_nBC = np.zeros((chunks, len(episodes), steps.pop()), np.float32)
        executed_nB = np.zeros((chunks, len(episodes)), np.int64)
        last_nB = np.zeros((chunks, len(episodes)), bool)
        for b, episode in enumerate(episodes):
            for n, decision in enumerate(episode.decisions):
                rewards_nBC[n, b], executed_nB[n, b] = decision.rewards_C, decision.executed
            if episode.decisions:
                last_nB[len(episode.decisions) - 1, b] = True
        terminated_B = np.array([episode.terminated for episode in episodes])
        truncated_B = np.array([episode.truncated for episode in episodes])
        rollout = Rollout.from_chunks(
            torch.from_numpy(rewards_nBC),
            torch.from_numpy(executed_nB),
            torch.from_numpy(last_nB & terminated_B),
            torch.from_numpy(last_nB & truncated_B),
            auto_reset=False,
        )
        groups_B = torch.tensor([episode.group for episode in episodes], dtype=torch.long)
        return cls(episodes=tuple(episodes), rollout=rollout, groups_B=groups_B)

    def values(self) -> Tensor:
        """[n, B]: the critic's as rolled out; zero where there was no decision. Raises RolloutMismatch."""
        values_nB = torch.zeros(self.rollout.rewards_nBC.shape[:2])
        for b, episode in enumerate(self.episodes):
            for n, decision in enumerate(episode.decisions):
                if decision.value is None:
                    raise RolloutMismatch(f"decisions[{n}].value: missing, needed by an algorithm with a critic")
                values_nB[n, b] = decision.value
        return values_nB

    def final_values(self, needed_B: Sequence[bool]) -> Tensor:
        """[n, B]: V(final observation) in the row where the episode ended. Raises RolloutMismatch if it is lacking."""
        values_nB = torch.zeros(self.rollout.rewards_nBC.shape[:2])
        for b, (episode, needed) in enumerate(zip(self.episodes, needed_B, strict=True)):
            if not needed or not episode.decisions:
                continue
            if episode.final_value is None:
                raise RolloutMismatch(f"final_value of seed {episode.seed}: missing, needed by the bootstrap")
            values_nB[len(episode.decisions) - 1, b] = episode.final_value
        return values_nB

    def in_rows(self, part: Tensor) -> Tensor:
        """[n, B, ...] -> [N, ...]: episode after episode, each decision in its order."""
        rows = [part[: len(episode.decisions), b] for b, episode in enumerate(self.episodes)]
        return torch.cat(rows)
