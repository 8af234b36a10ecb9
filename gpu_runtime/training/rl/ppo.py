"""PPO: clipped policy objective, clipped Huber value loss, entropy bonus, stop at a target KL.

    total = policy + value_coefficient * value - entropy_coefficient * entropy
    value = mean max(H(v - R), H(v_old + clip(v - v_old, +-value_clip) - R)),   H Huber with ``huber_delta``

Ratios are fp32 whatever the policy computes in. Schulman et al. 2017.

Shapes: N chunks of a minibatch, C executed actions per chunk, A action dims.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch, require_shape
from gpu_runtime.training.rl.levels import at_least_fp32
from gpu_runtime.training.rl.masks import full_mask, masked_mean
from gpu_runtime.training.rl.options import check_number
from gpu_runtime.training.rl.surrogate import ClipConfig, PolicyLoss, exceeds_target_kl, policy_loss

__all__ = ["PolicyLoss", "PpoConfig", "ValueLoss", "exceeds_target_kl", "policy_loss", "total_loss", "value_loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoConfig(ClipConfig):
    """``value_clip`` None: not clipped. ``entropy_coefficient`` above 0 needs a policy with a learned spread."""

    algorithm: ClassVar[str] = "ppo"
    value_coefficient: float = 1.0
    value_clip: float | None = 0.2
    huber_delta: float = 10.0
    entropy_coefficient: float = 0.0

    def __post_init__(self) -> None:
        ClipConfig.__post_init__(self)
        check_number("value_coefficient", self.value_coefficient, above=0)
        if self.value_clip is not None:
            check_number("value_clip", self.value_clip, above=0)
        check_number("huber_delta", self.huber_delta, above=0)
        check_number("entropy_coefficient", self.entropy_coefficient, at_least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLoss:
    """``clipped`` of ``elements`` values moved further than ``value_clip`` from the rollout's."""

    loss: Tensor
    elements: int
    clipped: int


def value_loss(
    config: PpoConfig, value: Tensor, old_value: Tensor | None, returns: Tensor, mask: Tensor | None = None
) -> ValueLoss:
    """Mean over valid elements; all of one shape, [N] of chunks or [N, C] of steps. The pessimistic of two errors."""
    require_shape("returns", returns.shape, value.shape)
    value, returns = at_least_fp32(value), at_least_fp32(returns.detach())
    valid = full_mask(mask, value)
    error = huber(value - returns, config.huber_delta)
    if config.value_clip is None:
        return ValueLoss(loss=masked_mean(error, valid), elements=int(valid.sum()), clipped=0)
    if old_value is None:
        raise RolloutMismatch("old_value: missing, needed by value_clip")
    require_shape("old_value", old_value.shape, value.shape)
    old_value = at_least_fp32(old_value.detach())
    held = old_value + (value - old_value).clamp(-config.value_clip, config.value_clip)
    error = torch.maximum(error, huber(held - returns, config.huber_delta))
    clipped = ((value.detach() - old_value).abs() > config.value_clip) & valid
    return ValueLoss(loss=masked_mean(error, valid), elements=int(valid.sum()), clipped=int(clipped.sum()))


def huber(error: Tensor, delta: float) -> Tensor:
    """e^2 / 2 within +-delta, beyond it delta (|e| - delta / 2)."""
    size = error.abs()
    return torch.where(size <= delta, 0.5 * error.square(), delta * (size - 0.5 * delta))


def total_loss(config: PpoConfig, policy: Tensor, value: Tensor, entropy: Tensor | None = None) -> Tensor:
    """What is differentiated. Raises OptionRefused if an entropy bonus is asked of a policy that has no entropy."""
    total = policy + config.value_coefficient * value
    if config.entropy_coefficient == 0:
        return total
    if entropy is None:
        raise OptionRefused("entropy_coefficient", "entropy_coefficient does not apply: this policy has no entropy")
    return total - config.entropy_coefficient * entropy
