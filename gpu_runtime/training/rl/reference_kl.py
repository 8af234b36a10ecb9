"""KL of the policy to the tenant's own reference snapshot, as a penalty: it keeps RL near what SFT taught.

    k3 = exp(d) - d - 1,  d = log pi_ref - log pi

Per element never negative, 0 only where both agree, and its mean over the policy's own actions is KL(pi || pi_ref).
Schulman 2020. It sees actions of the behaviour policy: an estimate for data that are not stale.

Shapes: N chunks of a minibatch, C executed actions per chunk, A action dims.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import require_shape
from gpu_runtime.training.rl.levels import LogProbLevel, log_prob_at, mask_at
from gpu_runtime.training.rl.masks import masked_mean
from gpu_runtime.training.rl.options import check_number, member
from gpu_runtime.training.rl.surrogate import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceKlConfig:
    """The penalty is added to the loss as ``coefficient`` times the mean KL."""

    algorithm: ClassVar[str] = "reference kl"
    coefficient: float
    log_prob_level: LogProbLevel = LogProbLevel.TOKEN

    def __post_init__(self) -> None:
        check_number("coefficient", self.coefficient, above=0)
        object.__setattr__(self, "log_prob_level", member("log_prob_level", self.log_prob_level, LogProbLevel))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceKl:
    """``penalty`` is what is differentiated; ``mean`` is the KL itself, detached."""

    penalty: Tensor
    mean: Tensor


def reference_kl(
    config: ReferenceKlConfig, log_prob_NCA: Tensor, reference_log_prob_NCA: Tensor, mask: Tensor | None = None
) -> ReferenceKl:
    """Mean over the valid elements of the level. No gradient reaches the reference."""
    require_shape("reference_log_prob", reference_log_prob_NCA.shape, log_prob_NCA.shape)
    level = config.log_prob_level
    reference = log_prob_at(level, reference_log_prob_NCA.detach(), mask)
    difference = bounded(reference - log_prob_at(level, log_prob_NCA, mask))
    mean = masked_mean(torch.expm1(difference) - difference, mask_at(level, log_prob_NCA, mask))
    return ReferenceKl(penalty=config.coefficient * mean, mean=mean.detach())
