"""What to know about an RL update: sums that merge over minibatches, micro-batches and processes.

A fraction or a variance of parts is never averaged: its sums are added, and the quotient is taken once at the end.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import FutureVersion, require_shape
from gpu_runtime.training.rl.masks import full_mask

CANCELLED = 1e-12  # a variance below this share of the mean square is rounding, not spread


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStatistics:
    """Of the elements that have a ratio of their own (see LogProbLevel): counts, sums and one maximum."""

    elements: int = 0
    clipped: int = 0  # the clip decides the element's loss and takes its gradient
    dual_clipped: int = 0
    ratio: float = 0.0
    ratio_max: float = 0.0
    kl: float = 0.0  # k3: (r - 1) - log r, never negative

    @classmethod
    def of(
        cls, log_ratio: Tensor, mask: Tensor | None, *, clipped: Tensor, dual_clipped: Tensor
    ) -> "PolicyStatistics":
        """``log_ratio`` = log pi - log pi_old; every tensor in the full shape of the level."""
        valid = full_mask(mask, log_ratio)
        logs = log_ratio.detach()[valid].double()
        ratio = logs.exp()
        return cls(
            elements=logs.numel(),
            clipped=int((clipped & valid).sum()),
            dual_clipped=int((dual_clipped & valid).sum()),
            ratio=float(ratio.sum()),
            ratio_max=float(ratio.max()) if logs.numel() else 0.0,
            kl=float((torch.expm1(logs) - logs).sum()),
        )

    def __add__(self, other: "PolicyStatistics") -> "PolicyStatistics":
        return PolicyStatistics(
            elements=self.elements + other.elements,
            clipped=self.clipped + other.clipped,
            dual_clipped=self.dual_clipped + other.dual_clipped,
            ratio=self.ratio + other.ratio,
            ratio_max=max(self.ratio_max, other.ratio_max),
            kl=self.kl + other.kl,
        )

    @property
    def approx_kl(self) -> float:
        """Estimate of KL(old || new) per element."""
        return self.kl / max(self.elements, 1)

    def metrics(self) -> dict[str, float]:
        """Fractions are per element and lie within [0, 1]."""
        elements = max(self.elements, 1)
        return {
            "clip_fraction": self.clipped / elements,
            "dual_clip_fraction": self.dual_clipped / elements,
            "ratio_mean": self.ratio / elements,
            "ratio_max": self.ratio_max,
            "approx_kl": self.approx_kl,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedVariance:
    """1 - Var(return - value) / Var(return), from global sums of returns y and errors e."""

    count: int = 0
    y: float = 0.0
    y_squared: float = 0.0
    e: float = 0.0
    e_squared: float = 0.0

    @classmethod
    def of(cls, values: Tensor, returns: Tensor, mask: Tensor | None = None) -> "ExplainedVariance":
        require_shape("returns", returns.shape, values.shape)
        valid = full_mask(mask, values)
        y = returns.detach()[valid].double()
        e = y - values.detach()[valid].double()
        return cls(
            count=y.numel(),
            y=float(y.sum()),
            y_squared=float(y.square().sum()),
            e=float(e.sum()),
            e_squared=float(e.square().sum()),
        )

    def __add__(self, other: "ExplainedVariance") -> "ExplainedVariance":
        names = [f.name for f in fields(self)]
        return ExplainedVariance(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def value(self) -> float:
        """NaN for fewer than two returns, and for returns that are all the same."""
        if self.count < 2:
            return math.nan
        variance = self.y_squared / self.count - (self.y / self.count) ** 2
        if variance <= CANCELLED * self.y_squared / self.count:
            return math.nan
        unexplained = self.e_squared / self.count - (self.e / self.count) ** 2
        return 1 - max(unexplained, 0.0) / variance


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProbGap:
    """The rollout's log-probabilities against the trainer's, recomputed with the same weights: it should be 0."""

    elements: int
    mean_absolute: float
    largest: float

    @classmethod
    def of(cls, rollout_log_prob: Tensor, trainer_log_prob: Tensor, mask: Tensor | None = None) -> "LogProbGap":
        require_shape("trainer_log_prob", trainer_log_prob.shape, rollout_log_prob.shape)
        valid = full_mask(mask, rollout_log_prob)
        gap = (trainer_log_prob.detach()[valid].double() - rollout_log_prob.detach()[valid].double()).abs()
        if gap.numel() == 0:
            return cls(elements=0, mean_absolute=0.0, largest=0.0)
        return cls(elements=gap.numel(), mean_absolute=float(gap.mean()), largest=float(gap.max()))


def staleness_histogram(policy_version: int, behaviour_versions: Iterable[int]) -> dict[int, int]:
    """Updates between acting and learning -> consumed chunks. Histograms of several updates add up key by key."""
    stale: Counter[int] = Counter()
    for version in behaviour_versions:
        if version > policy_version:
            raise FutureVersion(f"behaviour version {version} is newer than the policy version {policy_version}")
        stale[policy_version - int(version)] += 1
    return dict(sorted(stale.items()))
