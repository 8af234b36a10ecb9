"""REINFORCE with a baseline: on-policy, without ratio, clip or critic.

    G_t = sum_{k >= t} gamma^(k - t) R_k        A_t = G_t - b_t        L = mean(-A_t log pi)

The baseline b_t compares with the other episodes at the same decision t: their mean over the batch, over those from
the same initial state, or over all but the episode itself (unbiased; Kool et al. 2019). Williams 1992.

Shapes: n chunks, B environments (= episodes), N chunks of a minibatch, C executed actions, A action dims.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch, require_shape
from gpu_runtime.training.rl.levels import LogProbLevel, terms_at
from gpu_runtime.training.rl.masks import masked_mean, normalize
from gpu_runtime.training.rl.options import check_number, member, refusal
from gpu_runtime.training.rl.rollout import Rollout


class Baseline(StrEnum):
    """What a return is compared with."""

    NONE = "none"  # nothing: unbiased, the largest variance
    BATCH_MEAN = "batch_mean"  # every episode of the batch
    GROUP_MEAN = "group_mean"  # episodes with the same reset id
    LEAVE_ONE_OUT = "leave_one_out"  # the other episodes with the same reset id


GROUPED = (Baseline.GROUP_MEAN, Baseline.LEAVE_ONE_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig:
    """``gamma`` acts per decision. ``normalize_advantages``: over the whole batch, after the baseline."""

    algorithm: ClassVar[str] = "reinforce"
    gamma: float = 1.0
    baseline: Baseline = Baseline.BATCH_MEAN
    normalize_advantages: bool = True
    log_prob_level: LogProbLevel = LogProbLevel.TOKEN

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, at_least=0, at_most=1)
        if not isinstance(self.normalize_advantages, bool):
            raise refusal("normalize_advantages", self.normalize_advantages, "true or false")
        object.__setattr__(self, "baseline", member("baseline", self.baseline, Baseline))
        object.__setattr__(self, "log_prob_level", member("log_prob_level", self.log_prob_level, LogProbLevel))


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineAdvantages:
    """Zero where not valid; ``valid_nBC`` is the mask of the loss."""

    advantages_nB: Tensor
    returns_nB: Tensor
    valid_nBC: Tensor


def estimate(config: ReinforceConfig, rollout: Rollout, reset_ids_B: Tensor | None = None) -> BaselineAdvantages:
    """Returns to go minus the baseline. An episode that is compared with nobody has advantage 0.

    Without a critic, a truncated episode's return simply ends. Raises RolloutMismatch for auto-reset, OptionRefused
    for reset ids that the baseline does not use, or needs and lacks.
    """
    if rollout.auto_reset:
        raise RolloutMismatch("rollout: auto-reset, allowed: one episode per environment")
    groups_B = _groups(config, rollout, reset_ids_B)
    valid_nB = rollout.valid_chunks()
    rewards_nB = rollout.kept_rewards().double().sum(dim=2)
    returns_nB = torch.zeros_like(rewards_nB)
    ahead_B = torch.zeros_like(rewards_nB[0])
    for t in reversed(range(rewards_nB.shape[0])):
        ahead_B = rewards_nB[t] + config.gamma * ahead_B
        returns_nB[t] = ahead_B
    returns_nB = torch.where(valid_nB, returns_nB, torch.zeros_like(returns_nB))
    advantages_nB = _minus_baseline(config.baseline, returns_nB, valid_nB, groups_B)
    if config.normalize_advantages:
        advantages_nB = normalize(advantages_nB, valid_nB)
    dtype = rollout.rewards_nBC.dtype
    return BaselineAdvantages(
        advantages_nB=advantages_nB.to(dtype), returns_nB=returns_nB.to(dtype), valid_nBC=rollout.valid_steps()
    )


def policy_loss(
    config: ReinforceConfig, log_prob_NCA: Tensor, advantage_N: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Mean of -A log pi over the valid elements of the level. For data of the current policy version only."""
    terms = terms_at(config.log_prob_level, log_prob_NCA, advantage_N, mask)
    return masked_mean(-terms.advantage * terms.log_prob, terms.mask)


def _groups(config: ReinforceConfig, rollout: Rollout, reset_ids_B: Tensor | None) -> Tensor:
    envs = rollout.rewards_nBC.shape[1]
    if reset_ids_B is None:
        if config.baseline in GROUPED:
            raise OptionRefused("baseline", f"baseline = '{config.baseline}' does not apply without reset ids")
        return torch.zeros(envs, dtype=torch.long, device=rollout.rewards_nBC.device)
    if config.baseline not in GROUPED:
        raise OptionRefused("baseline", f"baseline = '{config.baseline}' does not apply to groups of reset ids")
    require_shape("reset_ids", reset_ids_B.shape, (envs,))
    return reset_ids_B


def _minus_baseline(baseline: Baseline, returns_nB: Tensor, valid_nB: Tensor, groups_B: Tensor) -> Tensor:
    if baseline is Baseline.NONE:
        return returns_nB
    same_BB = (groups_B[:, None] == groups_B[None, :]).to(returns_nB.dtype)
    if baseline is Baseline.LEAVE_ONE_OUT:
        same_BB = same_BB - torch.eye(len(groups_B), dtype=same_BB.dtype, device=same_BB.device)
    others_nB = valid_nB.to(returns_nB.dtype) @ same_BB
    mean_nB = (returns_nB @ same_BB) / others_nB.clamp(min=1)
    return torch.where(valid_nB & (others_nB > 0), returns_nB - mean_nB, torch.zeros_like(returns_nB))
