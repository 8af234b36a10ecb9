"""What an action head is: the tenant-private part behind the frozen backbone.

Shapes: B samples, H horizon, C executed steps, A action dims, S state dims, L feature tokens, D feature width.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from gpu_runtime.models.errors import HeadConfigurationError
from gpu_runtime.models.heads.density import Score
from gpu_runtime.models.heads.traces import Trace

VECTOR_LANES = 64  # float32 numbers; torch's kernels take at most two AVX-512 registers at a time, sin and cos halves

Features = Mapping[str, Tensor]
"""One sample's backbone outputs: tap -> [L, D]; the tap ``query`` has one row per action query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Sizes a head takes from the dataset and the backbone. ``state_dim`` 0: the policy sees no state."""

    action_dim: int
    state_dim: int
    feature_widths: Mapping[str, int]


class HeadInputs(Protocol):
    """What a training step feeds a head: a batch in model space with every random number settled.

    Nothing trained has touched it. ``join`` lays several tenants' batches one behind another, for heads that are
    stacked in the same order; ``signature`` is equal where batches can be joined.
    """

    @property
    def signature(self) -> tuple[Hashable, ...]: ...

    @staticmethod
    def join(parts: Sequence[Any]) -> "HeadInputs": ...


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
    hidden_widths: tuple[int, ...] = ()  # sizes of what goes through element-wise functions
    explorations: ClassVar[tuple[str, ...]] = ()  # stochastic policies that can be built around this head

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
    def stackable(self) -> bool:
        """Whether rows of several tenants may go through one call without a bit changing.

        Vectorised functions treat what is left over at a tensor's end by other code; so nothing may be left over.
        """
        return bool(self.hidden_widths) and all(width % VECTOR_LANES == 0 for width in self.hidden_widths)

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
    def inputs(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> Any:
        """A batch with all its randomness, for ``predict`` (``mask_BH`` None: every chunk step is valid).

        Everything is drawn from ``generator`` here, or follows from a seed that is. Touches no trained parameter.
        """

    @abstractmethod
    def predict(self, inputs: Any) -> Tensor:
        """What the loss compares, row by row; runs unchanged on stacked parameters and joined inputs."""

    @abstractmethod
    def error(self, predicted: Tensor, inputs: Any) -> LossParts:
        """Training loss in model space over valid chunk steps only."""

    def loss_of(self, inputs: Any) -> LossParts:
        """The loss of a prepared batch."""
        return self.error(self.predict(inputs), inputs)

    def loss(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> LossParts:
        """``loss_of`` of a batch that is prepared here."""
        return self.loss_of(self.inputs(features, state_BS, actions_BHA, mask_BH, generator))

    @abstractmethod
    def act(self, features: Sequence[Features], state_BS: Tensor | None, generator: torch.Generator) -> Tensor:
        """Actions in model space, [B, H, A]."""


class StochasticHead(nn.Module, ABC):
    """A policy that explores: a head, the parameters of its noise, and the log-probability of what it did.

    The head is the one that imitation trained, its weights and its velocity included; exploration only adds noise
    around it. Dropout and input noise are off, in rollouts and in recomputation alike: with unchanged weights the
    log-probability is the stored one. Samples are drawn unbounded; limits are the environment adapter's business, so
    that the log-probability stays that of a normal distribution.

    Every sample has its own CPU generator, hence the same trace alone and in any group. Log-probabilities and
    entropies are per element and cover what is executed (C of H steps) and explored; other elements are 0. Noise on
    steps that are not executed is not scored.
    """

    std_is_learned: ClassVar[bool]  # False: entropy is a constant, a bonus on it would do nothing
    explored_A: Tensor

    def __init__(self, head: Head, *, executed: int, explored_A: Tensor) -> None:
        """``explored_A`` is False at dimensions that are never random. Raises HeadConfigurationError."""
        super().__init__()
        if not 1 <= executed <= head.horizon:
            raise HeadConfigurationError(f"executed_steps: {executed}, allowed: 1 to the horizon, {head.horizon}")
        if explored_A.shape != (head.shape.action_dim,) or not bool(explored_A.any()):
            raise HeadConfigurationError(
                f"unexplored: {int(explored_A.sum())} of {head.shape.action_dim} action dimensions are left, allowed: "
                "at least 1"
            )
        self.head, self.executed = head, executed
        self.register_buffer("explored_A", explored_A.bool(), persistent=False)

    @abstractmethod
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the exploration's own parameters; the head's stay as they are."""

    def exploration_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are not the head's, by name."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("head.")}

    def exploration_state(self) -> dict[str, Tensor]:
        """Everything stored that is not the head's, by name."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("head.")}

    @torch.no_grad()
    def constrain(self) -> None:
        """Bring parameters back within their bounds; called after every update."""
        return None

    @abstractmethod
    def act(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """The policy without exploration, [B, H, A]: what evaluation and deployment run."""

    @abstractmethod
    def act_with_trace(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> tuple[Tensor, Trace]:
        """Exploring actions [B, H, A] in model space, and their trace. Not differentiable."""

    @abstractmethod
    def score(self, features: Sequence[Features], state_BS: Tensor | None, trace: Trace) -> Score:
        """Log-probability and entropy of a trace under the current weights. Raises BatchMismatch.

        Gradients reach this tenant's parameters and nothing else.
        """

    def log_prob(self, features: Sequence[Features], state_BS: Tensor | None, trace: Trace) -> Tensor:
        """Log-probability of every executed element, [B, C, A]."""
        return self.score(features, state_BS, trace).log_prob_BCA

    def entropy(self, features: Sequence[Features], state_BS: Tensor | None, trace: Trace) -> Tensor:
        """Entropy of every executed element, [B, C, A]."""
        return self.score(features, state_BS, trace).entropy_BCA


def detached(features: Sequence[Features]) -> list[Features]:
    """Features as plain data, whatever graph they come from: no tenant's loss may reach the shared base."""
    return [
        {tap: value.detach() if value.requires_grad else value for tap, value in sample.items()} for sample in features
    ]


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
