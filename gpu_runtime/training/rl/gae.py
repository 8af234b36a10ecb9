"""Generalised advantage estimation over chunked rewards, with a truncation bootstrap from the final observation.

    target bootstrap   r_t <- r_t + gamma V(final observation)      where the episode was cut off (see Bootstrap)
    TD error           d_t = r_t + gamma V_{t+1} (1 - done_t) - V_t
    advantage          g_t = d_t + gamma lambda (1 - done_t) g_{t+1}
    return             g_t + V_t

At chunk level r_t is the sum of a chunk's rewards up to the first done, and gamma acts once per decision; at action
level t runs over steps. The value of the observation before a reset is a forward of its own: the next observation of
an environment with auto-reset belongs to another episode. Schulman et al. 2016; Pardo et al. 2018 (time limits).

Shapes: n chunks, B environments, C steps per chunk.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import RolloutMismatch, require_shape
from gpu_runtime.training.rl.levels import RewardLevel
from gpu_runtime.training.rl.options import check_number, member
from gpu_runtime.training.rl.rollout import Rollout


class Bootstrap(StrEnum):
    """After which ends the value of the final observation is added to the reward."""

    STANDARD = "standard"  # truncated and not terminated: the return would have gone on
    ALWAYS = "always"  # terminated too: where success ends a dense reward, it must not look like a loss
    NEVER = "never"  # a step limit is part of the task: what lies behind it counts for nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class GaeConfig:
    """``gamma`` and ``gae_lambda`` per decision at chunk level, per step at action level."""

    algorithm: ClassVar[str] = "gae"
    gamma: float = 0.99
    gae_lambda: float = 0.95
    bootstrap: Bootstrap = Bootstrap.STANDARD
    reward_level: RewardLevel = RewardLevel.CHUNK

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, at_least=0, at_most=1)
        check_number("gae_lambda", self.gae_lambda, at_least=0, at_most=1)
        object.__setattr__(self, "bootstrap", member("bootstrap", self.bootstrap, Bootstrap))
        object.__setattr__(self, "reward_level", member("reward_level", self.reward_level, RewardLevel))


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """Not normalised; zero where not valid. [n, B] at chunk level, [n, B, C] at action level."""

    advantages: Tensor
    returns: Tensor
    valid: Tensor


def estimate(
    config: GaeConfig,
    rollout: Rollout,
    values: Tensor,
    next_values_B: Tensor,
    final_values_nB: Tensor | None = None,
) -> Advantages:
    """Advantages and returns of a rollout.

    ``values``: V of the observation each chunk was decided on, [n, B]; at action level [n, B, C], one per step.
    ``next_values_B``: V after the last chunk. ``final_values_nB``: V of the final observation of the episode that
    ended in this chunk, read only there; None if none needs it. Raises RolloutMismatch.
    """
    by_chunk = config.reward_level is RewardLevel.CHUNK
    steps = rollout.rewards_nBC.shape
    require_shape("values", values.shape, steps[:2] if by_chunk else steps)
    require_shape("next_values", next_values_B.shape, steps[1:2])
    values = values.detach()
    rewards, done, valid = _bootstrapped(config, rollout, final_values_nB, values)
    if by_chunk:
        rewards, done, valid = rewards.sum(dim=2), done.any(dim=2), rollout.valid_chunks()
        advantages = _recursion(config, rewards, done, valid, values, next_values_B)
    else:
        rewards, done, valid_TB = _time_first(rewards), _time_first(done), _time_first(valid)
        advantages = _recursion(config, rewards, done, valid_TB, _time_first(values), next_values_B)
        advantages = _chunks_first(advantages, steps)
    zeros = torch.zeros_like(advantages)
    returns = torch.where(valid, advantages + values, zeros)
    return Advantages(advantages=torch.where(valid, advantages, zeros), returns=returns, valid=valid)


def _bootstrapped(
    config: GaeConfig, rollout: Rollout, final_values_nB: Tensor | None, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(rewards with the bootstrap added, done, valid), each [n, B, C]."""
    valid = rollout.valid_steps()
    done = (rollout.terminated_nBC | rollout.truncated_nBC) & valid
    goes_on = _goes_on(config.bootstrap, done, rollout.terminated_nBC)
    rewards = rollout.kept_rewards().to(values.dtype)
    if final_values_nB is None:
        if bool(goes_on.any()):
            raise RolloutMismatch("final_values: missing, needed where an episode was cut off")
        return rewards, done, valid
    require_shape("final_values", final_values_nB.shape, rewards.shape[:2])
    final = torch.where(goes_on, final_values_nB.detach()[..., None].to(values.dtype), torch.zeros_like(rewards))
    return rewards + config.gamma * final, done, valid


def _goes_on(bootstrap: Bootstrap, done_nBC: Tensor, terminated_nBC: Tensor) -> Tensor:
    """Ends behind which the return is continued by a value."""
    match bootstrap:
        case Bootstrap.ALWAYS:
            return done_nBC
        case Bootstrap.NEVER:
            return torch.zeros_like(done_nBC)
        case Bootstrap.STANDARD:
            return done_nBC & ~terminated_nBC


def _recursion(
    config: GaeConfig, rewards_TB: Tensor, done_TB: Tensor, valid_TB: Tensor, values_TB: Tensor, next_values_B: Tensor
) -> Tensor:
    """Backwards in time; entries that are not valid are passed over, as if they were not there."""
    advantages_TB = torch.zeros_like(values_TB)
    next_value_B = next_values_B.detach().to(values_TB.dtype)
    carried_B = torch.zeros_like(next_value_B)
    for t in reversed(range(values_TB.shape[0])):
        goes_on_B = ~done_TB[t]
        ahead_B = torch.where(goes_on_B, next_value_B, torch.zeros_like(next_value_B))
        later_B = torch.where(goes_on_B, carried_B, torch.zeros_like(carried_B))
        error_B = rewards_TB[t] + config.gamma * ahead_B - values_TB[t]
        advantages_TB[t] = error_B + config.gamma * config.gae_lambda * later_B
        carried_B = torch.where(valid_TB[t], advantages_TB[t], carried_B)
        next_value_B = torch.where(valid_TB[t], values_TB[t], next_value_B)
    return advantages_TB


def _time_first(part_nBC: Tensor) -> Tensor:
    """[n, B, C] -> [n C, B]"""
    return part_nBC.transpose(1, 2).reshape(-1, part_nBC.shape[1])


def _chunks_first(part_TB: Tensor, shape_nBC: torch.Size) -> Tensor:
    chunks, envs, steps = shape_nBC
    return part_TB.reshape(chunks, steps, envs).transpose(1, 2)
