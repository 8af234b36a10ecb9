"""The clipped policy objective that PPO, GRPO and decoupled PPO share, and the options of its clip.

    r = pi / pi_old        L = max(-A r, -A clip(r, 1 - low, 1 + high))        dual clip: A < 0 -> L = min(L, c |A|)

Schulman et al. 2017; clip-higher: Yu et al. 2025 (DAPO); dual clip: Ye et al. 2020.

Shapes: N chunks of a minibatch, C executed actions per chunk, A action dims.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.errors import require_shape
from gpu_runtime.training.rl.levels import LogProbLevel, log_prob_at, terms_at
from gpu_runtime.training.rl.masks import masked_mean
from gpu_runtime.training.rl.options import check_number, member

LOG_RATIO_LIMIT = 20.0  # e^20: far outside any clip, and its product with an advantage is still finite in fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipConfig:
    """Options of every algorithm with a probability ratio. ``dual_clip`` and ``target_kl`` None: not used."""

    algorithm: ClassVar[str] = "clipped policy gradient"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    target_kl: float | None = None
    log_prob_level: LogProbLevel = LogProbLevel.TOKEN

    def __post_init__(self) -> None:
        check_number("clip_low", self.clip_low, above=0, at_most=1)
        check_number("clip_high", self.clip_high, above=0)
        if self.dual_clip is not None:
            check_number("dual_clip", self.dual_clip, above=1)
        if self.target_kl is not None:
            check_number("target_kl", self.target_kl, above=0)
        object.__setattr__(self, "log_prob_level", member("log_prob_level", self.log_prob_level, LogProbLevel))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """``loss`` is what is differentiated."""

    loss: Tensor
    statistics: PolicyStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """Element by element: the objective, and whether a clip decided it."""

    loss: Tensor
    clipped: Tensor
    dual_clipped: Tensor


def clipped_surrogate(config: ClipConfig, log_ratio: Tensor, advantage: Tensor) -> Surrogate:
    """All tensors have one shape. An element is clipped where its ratio left the range on the side that pays."""
    ratio = log_ratio.exp()
    plain = -advantage * ratio
    held = -advantage * ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    loss = torch.maximum(plain, held)
    clipped = held > plain
    if config.dual_clip is None:
        return Surrogate(loss=loss, clipped=clipped, dual_clipped=torch.zeros_like(clipped))
    ceiling = config.dual_clip * advantage.abs()
    dual_clipped = loss > ceiling  # of bad actions only: the loss of a good one is negative
    return Surrogate(loss=torch.where(dual_clipped, ceiling, loss), clipped=clipped, dual_clipped=dual_clipped)


def policy_loss(
    config: ClipConfig,
    log_prob_NCA: Tensor,
    old_log_prob_NCA: Tensor,
    advantage: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> PolicyLoss:
    """Mean over the valid elements of the level. ``advantage`` and ``weight``: [N] of chunks or [N, C] of steps;
    ``mask``: see ``levels``.

    A minibatch that is split into micro-batches adds up to the same gradient if each part's loss is scaled by its
    share of ``statistics.elements`` (without a weight).
    """
    require_shape("old_log_prob", old_log_prob_NCA.shape, log_prob_NCA.shape)
    level = config.log_prob_level
    terms = terms_at(level, log_prob_NCA, advantage, mask)
    log_ratio = bounded(terms.log_prob - log_prob_at(level, old_log_prob_NCA.detach(), mask))
    found = clipped_surrogate(config, log_ratio, terms.advantage)
    statistics = PolicyStatistics.of(log_ratio, terms.mask, clipped=found.clipped, dual_clipped=found.dual_clipped)
    return PolicyLoss(loss=masked_mean(found.loss, terms.mask, weight), statistics=statistics)


def bounded(log_ratio: Tensor) -> Tensor:
    """The log-ratio within +-LOG_RATIO_LIMIT, without gradient beyond: infinity times zero would be NaN."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def exceeds_target_kl(config: ClipConfig, statistics: PolicyStatistics) -> bool:
    """Stop this update's remaining epochs: the policy has moved further than ``target_kl`` (k3, per element)."""
    return config.target_kl is not None and not statistics.approx_kl <= config.target_kl
