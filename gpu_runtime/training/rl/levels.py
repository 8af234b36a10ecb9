"""How finely log-probabilities, rewards and advantages are resolved, and which combinations make sense.

Shapes: N chunks of a minibatch, C executed actions per chunk, A action dims. A mask is [N, C] (valid steps), or
[N, C, A] where some action dims are not explored: they have no ratio and must not dilute the means.
"""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch, require_shape
from gpu_runtime.training.rl.masks import full_mask, keep


class LogProbLevel(StrEnum):
    """What has a probability ratio of its own, and is clipped alone."""

    TOKEN = "token"  # noqa: S105 - every action dimension of every step: [N, C, A]
    ACTION = "action"  # every step, summed over its dimensions: [N, C]
    CHUNK = "chunk"  # the whole chunk, summed over its valid steps: [N]; ratios are heavy-tailed


class RewardLevel(StrEnum):
    """What has a reward, a value and an advantage of its own."""

    CHUNK = "chunk"  # one decision; the discount acts per decision
    ACTION = "action"  # one step; the discount acts per step, the value head gives C values per observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Tensors of one minibatch in the full shape of the level: [N, C, A], [N, C] or [N]; fp32 or wider."""

    log_prob: Tensor
    advantage: Tensor
    mask: Tensor


def log_prob_at(level: LogProbLevel, log_prob_NCA: Tensor, mask: Tensor | None = None) -> Tensor:
    """Log-probabilities summed to the level, in fp32 or wider; what is behind the mask contributes nothing."""
    if log_prob_NCA.dim() != 3:
        raise RolloutMismatch(f"log_prob: shape {tuple(log_prob_NCA.shape)}, allowed: [chunks, steps, action dims]")
    kept = keep(at_least_fp32(log_prob_NCA), mask)
    match level:
        case LogProbLevel.TOKEN:
            return kept
        case LogProbLevel.ACTION:
            return kept.sum(dim=2)
        case LogProbLevel.CHUNK:
            return kept.sum(dim=(1, 2))


def terms_at(level: LogProbLevel, log_prob_NCA: Tensor, advantage: Tensor, mask: Tensor | None) -> Terms:
    """Everything in the full shape of the level. ``advantage`` is [N] (of chunks) or [N, C] (of steps).

    Raises OptionRefused for an advantage of steps at the chunk level: it can't be attributed.
    """
    log_prob = log_prob_at(level, log_prob_NCA, mask)
    valid = mask_at(level, log_prob_NCA, mask)
    return Terms(log_prob=log_prob, advantage=keep(spread(level, advantage, log_prob_NCA), valid), mask=valid)


def mask_at(level: LogProbLevel, log_prob_NCA: Tensor, mask: Tensor | None) -> Tensor:
    """The mask in the full shape of the level; a step or a chunk is valid if something in it is."""
    valid_NCA = full_mask(mask, log_prob_NCA)
    match level:
        case LogProbLevel.TOKEN:
            return valid_NCA
        case LogProbLevel.ACTION:
            return valid_NCA.any(dim=2)
        case LogProbLevel.CHUNK:
            return valid_NCA.flatten(1).any(dim=1)


def spread(level: LogProbLevel, values: Tensor, log_prob_NCA: Tensor) -> Tensor:
    """Values of chunks [N] or steps [N, C] in the full shape of the level."""
    full = log_prob_NCA.shape[: {LogProbLevel.TOKEN: 3, LogProbLevel.ACTION: 2, LogProbLevel.CHUNK: 1}[level]]
    if values.dim() == 2:
        if level is LogProbLevel.CHUNK:
            raise OptionRefused("log_prob_level", "log_prob_level = 'chunk' does not apply to advantages of actions")
        require_shape("advantage", values.shape, log_prob_NCA.shape[:2])
    else:
        require_shape("advantage", values.shape, log_prob_NCA.shape[:1])
    lifted = at_least_fp32(values.detach())
    return lifted.reshape(*lifted.shape, *[1] * (len(full) - lifted.dim())).expand(full)


def at_least_fp32(values: Tensor) -> Tensor:
    """Half precision becomes fp32: a ratio of two bf16 log-probabilities is noise."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
