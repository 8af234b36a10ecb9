"""What an algorithm is to everybody else: how it credits episodes, and the policy's part of its loss.

Shapes: N chunks, C executed actions per chunk, A action dims; n decisions in time, B episodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.experience import Episode, Experience
from gpu_runtime.training.rl.masks import Moments
from gpu_runtime.training.rl.ppo import PpoConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advantages:
    """One row per decision, episode after episode. Zero where the mask leaves a chunk out."""

    advantage_N: np.ndarray  # float32
    returns_N: np.ndarray | None  # what a critic learns; None without one
    mask_NC: np.ndarray  # executed steps that are learned from
    statistics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyRows:
    """Chunks of one minibatch. ``mask_NCA``: executed steps of explored dimensions."""

    log_prob_NCA: Tensor  # under the weights as they are; carries the gradient
    behaviour_NCA: Tensor  # as rolled out
    start_NCA: Tensor  # under the weights at the start of the update
    advantage_N: Tensor
    mask_NCA: Tensor
    version_N: Tensor
    policy_version: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyTerm:
    """``loss`` is differentiated; ``sums`` are further metrics, added up and divided by the elements at the end."""

    loss: Tensor
    statistics: PolicyStatistics
    sums: Mapping[str, float] = field(default_factory=dict)


class Method(ABC):
    """One algorithm under one job's options. Adding one: a file like its neighbours and a line in ``registry``."""

    critic: PpoConfig | None = None  # options of value loss and entropy bonus; None: no critic

    @abstractmethod
    def estimate(self, experience: Experience) -> Advantages:
        """Credit every decision. Raises RolloutMismatch or NonFiniteReward."""

    @abstractmethod
    def policy_term(self, rows: PolicyRows) -> PolicyTerm:
        """The policy's loss on one minibatch."""

    def needs_final_value(self, *, terminated: bool, truncated: bool) -> bool:
        """True if V(final observation) of an episode that ended so is part of its return."""
        return False

    def exceeds_target_kl(self, statistics: PolicyStatistics) -> bool:
        """Stop this update's remaining epochs; ``statistics`` are of the whole batch under the weights as they are."""
        return False


def rows_of(experience: Experience, part_nB: Tensor) -> np.ndarray:
    """[n, B] -> float32 [N]."""
    return experience.in_rows(part_nB).float().numpy()


def mask_of(experience: Experience, valid_nBC: Tensor) -> np.ndarray:
    """[n, B, C] -> bool [N, C]."""
    return experience.in_rows(valid_nBC).numpy()


def spread_of(name: str, known: Moments) -> dict[str, float]:
    """Mean, spread and range as metrics."""
    values: dict[str, float] = {"mean": known.mean, "std": known.std, "min": known.low, "max": known.high}
    return {f"{name}_{part}": value for part, value in values.items()}


def ended(episodes: Sequence[Episode], method: Method) -> list[bool]:
    """Which episodes' final observation has a value that counts."""
    return [method.needs_final_value(terminated=e.terminated, truncated=e.truncated) for e in episodes]


def no_clip(log_ratio: Tensor, mask: Tensor) -> PolicyStatistics:
    """Statistics of ratios that nothing clips."""
    nothing = torch.zeros_like(log_ratio, dtype=torch.bool)
    return PolicyStatistics.of(log_ratio, mask, clipped=nothing, dual_clipped=nothing)
