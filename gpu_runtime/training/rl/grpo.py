"""GRPO: an episode's advantage is its return among the episodes that started from the same initial state.

    A = (R - mean_G) / (std_G + epsilon),  unbiased std over group G;  every valid step of the episode gets A

A group is what shares a reset id (task and initial state), wherever its members lie. If all its members got the same
return, or only one is left, its advantage is exactly 0. No critic. Shao et al. 2024.

Shapes: n chunks, B environments (= episodes), C steps per chunk, G groups.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch, require_shape
from gpu_runtime.training.rl.options import check_number, refusal
from gpu_runtime.training.rl.rollout import Rollout
from gpu_runtime.training.rl.surrogate import ClipConfig, PolicyLoss, exceeds_target_kl, policy_loss

__all__ = ["GroupAdvantages", "GrpoConfig", "PolicyLoss", "estimate", "exceeds_target_kl", "policy_loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoConfig(ClipConfig):
    """Groups whose mean return lies outside [filter_low, filter_high] are left out; both None: all are kept.

    ``min_std``: a group with less spread has advantage 0, so that noise in the rewards is not blown up to size 1.
    """

    algorithm: ClassVar[str] = "grpo"
    group_size: int = 8
    epsilon: float = 1e-6
    min_std: float = 0.0
    filter_low: float | None = None
    filter_high: float | None = None

    def __post_init__(self) -> None:
        ClipConfig.__post_init__(self)
        if isinstance(self.group_size, bool) or not isinstance(self.group_size, int) or self.group_size < 2:
            raise refusal("group_size", self.group_size, "a whole number, 2 or more")
        check_number("epsilon", self.epsilon, above=0)
        check_number("min_std", self.min_std, at_least=0)
        if (self.filter_low is None) != (self.filter_high is None):
            name, other = ("filter_low", "filter_high") if self.filter_high is None else ("filter_high", "filter_low")
            raise OptionRefused(name, f"{name} does not apply without {other}")
        if self.filter_low is not None and self.filter_high is not None:
            check_number("filter_low", self.filter_low)
            check_number("filter_high", self.filter_high, above=self.filter_low)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdvantages:
    """``valid_nBC`` is the mask of the loss: executed steps of the groups that were kept. Counts merge by adding."""

    advantages_nB: Tensor
    valid_nBC: Tensor
    returns_B: Tensor
    groups: int
    zero_advantage_groups: int  # all members alike: nothing to learn from them
    filtered_groups: int

    @property
    def zero_advantage_fraction(self) -> float:
        return self.zero_advantage_groups / max(self.groups, 1)

    @property
    def filtered_fraction(self) -> float:
        return self.filtered_groups / max(self.groups, 1)


def estimate(config: GrpoConfig, rollout: Rollout, reset_ids_B: Tensor) -> GroupAdvantages:
    """Advantages by group. An environment that was lost (no executed step) belongs to no group.

    Raises RolloutMismatch for auto-reset (an environment must be one episode) and for a group larger than
    ``group_size`` (one reset id drawn twice).
    """
    if rollout.auto_reset:
        raise RolloutMismatch("rollout: auto-reset, allowed: one episode per environment")
    require_shape("reset_ids", reset_ids_B.shape, rollout.rewards_nBC.shape[1:2])
    valid_nBC = rollout.valid_steps()
    present_B = valid_nBC.any(dim=2).any(dim=0)
    returns_B = rollout.kept_rewards().double().sum(dim=(0, 2))
    advantages_B, keep_B = torch.zeros_like(returns_B), present_B.clone()
    groups = zero = filtered = 0
    for reset_id in reset_ids_B[present_B].unique():
        members = ((reset_ids_B == reset_id) & present_B).nonzero()[:, 0]
        if len(members) > config.group_size:
            raise RolloutMismatch(f"reset id {int(reset_id)}: {len(members)} episodes, allowed: {config.group_size}")
        relative = _relative(config, returns_B[members])
        advantages_B[members] = relative
        inside = _is_kept(config, float(returns_B[members].mean()))
        keep_B[members] = inside
        groups, zero, filtered = groups + 1, zero + int(not bool(relative.any())), filtered + int(not inside)
    kept_nBC = valid_nBC & keep_B[None, :, None]
    return GroupAdvantages(
        advantages_nB=(advantages_B * kept_nBC.any(dim=2)).to(rollout.rewards_nBC.dtype),
        valid_nBC=kept_nBC,
        returns_B=returns_B,
        groups=groups,
        zero_advantage_groups=zero,
        filtered_groups=filtered,
    )


def _relative(config: GrpoConfig, returns: Tensor) -> Tensor:
    if len(returns) < 2 or bool((returns == returns[0]).all()) or float(returns.std()) < config.min_std:
        return torch.zeros_like(returns)
    return (returns - returns.mean()) / (returns.std() + config.epsilon)


def _is_kept(config: GrpoConfig, mean: float) -> bool:
    return config.filter_low is None or config.filter_high is None or config.filter_low <= mean <= config.filter_high
