"""Elementwise normal distributions with elements that are not random at all (std 0), and their log-densities.

Shapes: B samples, C executed steps, A action dims.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Independent normal elements; ``std`` has the shape of ``mean``. An element of std 0 is its mean."""

    mean: Tensor
    std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """mean + std noise; with std 0 exactly the mean."""
        return self.mean + self.std * noise

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of every element, the normaliser included; an element of std 0 contributes 0."""
        z = (x - self.mean) / self._safe_std()
        return self._random_only(-0.5 * z.square() - self._safe_std().log() - LOG_SQRT_2PI)

    def entropy(self) -> Tensor:
        """Entropy of every element; an element of std 0 contributes 0."""
        return self._random_only(0.5 + LOG_SQRT_2PI + self._safe_std().log())

    def _safe_std(self) -> Tensor:
        # replaced before the division: a NaN hidden by a later ``where`` would still reach the gradient
        return torch.where(self.std > 0, self.std, 1.0)

    def _random_only(self, value: Tensor) -> Tensor:
        return torch.where(self.std > 0, value, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What an update needs of a trace under the current weights, each [B, C, A]."""

    log_prob_BCA: Tensor
    entropy_BCA: Tensor
