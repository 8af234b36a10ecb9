"""Decoupled PPO: the clip is around a recent policy, stale data are corrected by a capped importance weight.

    r = pi / pi_prox      w = pi_prox / pi_behaviour (no gradient)      L = w max(-A r, -A clip(r, 1 - low, 1 + high))

pi_prox is recomputed with the weights at the start of the update, or interpolated between the two at hand:

    log pi_prox = log pi_b + alpha (log pi - log pi_b),  alpha = clamp((v - 1 - v_b) / (v - v_b), 0, 1), 0 if v = v_b

Data of the current version (v = v_b) give ordinary PPO. Where w exceeds its cap the element is left out (or w is
clamped), but the mean is still taken over all elements of the mask: dropping data must not turn up the others'
gradient. Hilton et al. 2022; Fu et al. 2025 (AReaL).

Shapes: N chunks of a minibatch, C executed actions per chunk, A action dims.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from torch import Tensor

from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.errors import FutureVersion, OptionRefused, require_shape
from gpu_runtime.training.rl.levels import at_least_fp32, log_prob_at, terms_at
from gpu_runtime.training.rl.masks import masked_mean
from gpu_runtime.training.rl.options import check_number, member
from gpu_runtime.training.rl.surrogate import ClipConfig, bounded, clipped_surrogate


class Proximal(StrEnum):
    """Where the log-probabilities of the proximal policy come from."""

    RECOMPUTED = "recomputed"  # a forward at the start of the update
    INTERPOLATED = "interpolated"  # by policy version, without a forward


class CapAction(StrEnum):
    """What happens to an element whose behaviour weight exceeds the cap."""

    MASK = "mask"  # it contributes nothing
    CLAMP = "clamp"  # it contributes with the cap as its weight


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoupledConfig(ClipConfig):
    """Clip options are around the proximal policy."""

    algorithm: ClassVar[str] = "decoupled ppo"
    behaviour_weight_cap: float = 2.0
    cap_action: CapAction = CapAction.MASK
    proximal: Proximal = Proximal.RECOMPUTED

    def __post_init__(self) -> None:
        ClipConfig.__post_init__(self)
        check_number("behaviour_weight_cap", self.behaviour_weight_cap, at_least=1)
        object.__setattr__(self, "cap_action", member("cap_action", self.cap_action, CapAction))
        object.__setattr__(self, "proximal", member("proximal", self.proximal, Proximal))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoupledLoss:
    """``statistics`` compare with the proximal policy; ``capped`` of its elements exceeded the behaviour cap."""

    loss: Tensor
    statistics: PolicyStatistics
    capped: int
    behaviour_kl: float  # k3 sum of pi_prox against pi_behaviour

    def metrics(self) -> dict[str, float]:
        elements = max(self.statistics.elements, 1)
        return self.statistics.metrics() | {
            "behaviour_cap_fraction": self.capped / elements,
            "behaviour_kl": self.behaviour_kl / elements,
        }


def interpolated_log_prob(
    log_prob_NCA: Tensor, behaviour_log_prob_NCA: Tensor, behaviour_version_N: Tensor, policy_version: int
) -> Tensor:
    """log pi_prox without a forward, detached, [N, C, A]. Raises FutureVersion."""
    require_shape("behaviour_version", behaviour_version_N.shape, log_prob_NCA.shape[:1])
    age_N = policy_version - behaviour_version_N
    if bool((age_N < 0).any()):
        raise FutureVersion(
            f"behaviour version {int(behaviour_version_N.max())} is newer than the policy version {policy_version}"
        )
    alpha_N = ((age_N - 1).clamp(min=0) / age_N.clamp(min=1)).to(log_prob_NCA.device)
    behaviour = at_least_fp32(behaviour_log_prob_NCA.detach())
    return behaviour + alpha_N[:, None, None].to(behaviour.dtype) * (at_least_fp32(log_prob_NCA.detach()) - behaviour)


def policy_loss(
    config: DecoupledConfig,
    log_prob_NCA: Tensor,
    behaviour_log_prob_NCA: Tensor,
    advantage: Tensor,
    mask: Tensor | None = None,
    *,
    proximal_log_prob_NCA: Tensor | None = None,
    behaviour_version_N: Tensor | None = None,
    policy_version: int | None = None,
) -> DecoupledLoss:
    """Mean over the elements of the mask, capped ones included in the count.

    Needs ``proximal_log_prob_NCA`` if it is recomputed, the versions if it is interpolated; the other is refused.
    """
    require_shape("behaviour_log_prob", behaviour_log_prob_NCA.shape, log_prob_NCA.shape)
    if config.proximal is Proximal.RECOMPUTED:
        if proximal_log_prob_NCA is None or behaviour_version_N is not None or policy_version is not None:
            raise OptionRefused("proximal", "proximal = 'recomputed' takes proximal_log_prob and no versions")
        proximal_NCA = proximal_log_prob_NCA.detach()
    else:
        if proximal_log_prob_NCA is not None or behaviour_version_N is None or policy_version is None:
            raise OptionRefused("proximal", "proximal = 'interpolated' takes the versions and no proximal_log_prob")
        proximal_NCA = interpolated_log_prob(log_prob_NCA, behaviour_log_prob_NCA, behaviour_version_N, policy_version)
    require_shape("proximal_log_prob", proximal_NCA.shape, log_prob_NCA.shape)
    return _loss(config, log_prob_NCA, proximal_NCA, behaviour_log_prob_NCA.detach(), advantage, mask)


def _loss(
    config: DecoupledConfig,
    log_prob_NCA: Tensor,
    proximal_NCA: Tensor,
    behaviour_NCA: Tensor,
    advantage: Tensor,
    mask: Tensor | None,
) -> DecoupledLoss:
    level = config.log_prob_level
    terms = terms_at(level, log_prob_NCA, advantage, mask)
    proximal = log_prob_at(level, proximal_NCA, mask)
    log_ratio = bounded(terms.log_prob - proximal)
    log_weight = bounded(proximal - log_prob_at(level, behaviour_NCA, mask))
    found = clipped_surrogate(config, log_ratio, terms.advantage)
    weight, capped = _capped(config, log_weight)
    statistics = PolicyStatistics.of(log_ratio, terms.mask, clipped=found.clipped, dual_clipped=found.dual_clipped)
    return DecoupledLoss(
        loss=masked_mean(weight * found.loss, terms.mask),
        statistics=statistics,
        capped=int((capped & terms.mask).sum()),
        behaviour_kl=float((torch.expm1(log_weight) - log_weight)[terms.mask].double().sum()),
    )


def _capped(config: DecoupledConfig, log_weight: Tensor) -> tuple[Tensor, Tensor]:
    weight = log_weight.exp()
    capped = weight > config.behaviour_weight_cap
    if config.cap_action is CapAction.CLAMP:
        return weight.clamp(max=config.behaviour_weight_cap), capped
    return torch.where(capped, torch.zeros_like(weight), weight), capped
