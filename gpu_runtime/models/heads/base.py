"""What an action head is: the tenant-private part behind the frozen backbone.

Shapes: B samples, H horizon, A action dims, S state dims, L feature tokens, D feature width.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Features = Mapping[str, Tensor]
"""One sample's backbone outputs: tap -> [L, D]; the tap ``query`` has one row per action query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Sizes a head takes from the dataset and the backbone. ``state_dim`` 0: the policy sees no state."""

    action_dim: int
    state_dim: int
    feature_widths: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """``total`` is what is differentiated; ``parts`` are its components, for charts."""

    total: Tensor
    parts: Mapping[str, Tensor]


class Head(nn.Module, ABC):
    """Model-space actions [-1, 1] from backbone features and a normalised state.

    Every random number comes from the generator that is passed in, so that results never depend on who else trains
    in this process. ``generator`` None means deterministic: no dropout, no noise.
    """

    query_tokens: int = 0  # action queries the prompt must end with
    fit_frames: int = 0  # frames ``fit`` wants; 0: nothing to fit

    def __init__(self, *, horizon: int, shape: HeadShape) -> None:
        super().__init__()
        self.horizon = horizon
        self.shape = shape

    @staticmethod
    @abstractmethod
    def taps_of(spec: Any) -> tuple[str, ...]:
        """Taps a head of this specification reads; known before it is built."""

    def taps(self) -> frozenset[str]:
        """Backbone outputs this head reads."""
        return frozenset(self.shape.feature_widths)

    @property
    def needs_fit(self) -> bool:
        """True until statistics of the tenant's own features are known."""
        return False

    def fit(self, features: Sequence[Features]) -> None:
        """Learn feature statistics from the tenant's own frames; stored with the weights."""
        return None

    def fit_shape(self) -> dict[str, int]:
        """Sizes that only ``fit`` knows, so that ``allocate`` can rebuild the same tensors before loading."""
        return {}

    def allocate(self, fit_shape: Mapping[str, int]) -> None:
        """Make room for fitted statistics of these sizes."""
        return None

    @abstractmethod
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw every weight from ``generator``."""

    @abstractmethod
    def loss(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> LossParts:
        """Training loss in model space over valid chunk steps only (``mask_BH`` None: all are valid)."""

    @abstractmethod
    def act(self, features: Sequence[Features], state_BS: Tensor | None, generator: torch.Generator) -> Tensor:
        """Actions in model space, [B, H, A]."""


def initialize(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of every linear layer so that it keeps the variance of its input; biases are zero.

    torch's own rule shrinks a signal by 1.7 per layer. A flow head must copy its noisy input to its output exactly,
    and learns that several times faster from here (measured on a 26-dimensional robot).
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            bound = math.sqrt(3 / layer.in_features)
            with torch.no_grad():
                layer.weight.copy_((torch.rand(layer.weight.shape, generator=generator) * 2 - 1) * bound)
            _zero_bias(layer)


def initialize_output(layer: nn.Linear, generator: torch.Generator, *, std: float = 1e-3) -> None:
    """Make a last layer start near zero, so that the first updates are not spent undoing a random output."""
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * std)
    _zero_bias(layer)


def initialize_branch(layer: nn.Linear) -> None:
    """Make the last layer of a residual branch start at zero: the block starts as the identity."""
    nn.init.zeros_(layer.weight)
    _zero_bias(layer)


def _zero_bias(layer: nn.Linear) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
