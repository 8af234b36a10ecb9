"""A published policy: a frozen copy that acts, whatever training does to the original meanwhile.

Shapes: B observations, H horizon, A action dims, S state dims.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.inference.errors import InvalidPredict, NonFiniteActions, SamplingUnsupported
from gpu_runtime.inference.messages import Mode, PredictRequest
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.heads.base import Features, Head
from gpu_runtime.models.policy import Policy

M = TypeVar("M", bound=nn.Module)


class Exploration(Protocol):
    """A stochastic policy around a head: one CPU generator per observation, so noise never depends on the group."""

    head: Head

    def act(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> Tensor: ...

    def act_with_trace(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> tuple[Tensor, Mapping[str, Tensor]]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """Chunks in real units; the trace of sampled ones; the value where there is a value head."""

    actions_BHA: np.ndarray
    trace: dict[str, Tensor] | None
    value_B: np.ndarray | None


class ServedPolicy:
    """Immutable. Made by ``freeze`` in the thread that trains the original; acts in the compute thread."""

    def __init__(
        self,
        policy: Policy,
        backbone: Backbone,
        *,
        exploration: Exploration | None = None,
        value: nn.Module | None = None,
    ) -> None:
        self.policy, self.backbone = policy, backbone
        self._exploration, self._value = exploration, value
        self.taps = policy.taps
        self.query_tokens = policy.query_tokens
        self._view_sizes = [(view.height, view.width) for view in policy.views]
        self.prefix_hash = policy.signature(backbone).hash

    @classmethod
    def freeze(
        cls,
        policy: Policy,
        backbone: Backbone,
        *,
        exploration: Any = None,
        value: nn.Module | None = None,
    ) -> "ServedPolicy":
        """Copy the weights. ``exploration`` is a module around the policy's own head, and is copied with it.

        Raises ValueError for a tap that this base doesn't have.
        """
        for tap in policy.taps:
            backbone.tap_width(tap)
        frozen = copy.copy(policy)  # normalisation and schema are immutable
        explorer = None if exploration is None else _frozen_copy(exploration)
        frozen.head = _frozen_copy(policy.head) if explorer is None else explorer.head
        own_value = None if value is None else _frozen_copy(value)
        return cls(frozen, backbone, exploration=explorer, value=own_value)

    @property
    def group_key(self) -> str:
        return self.backbone.group_key

    def tokens(self, request: PredictRequest) -> int:
        """Prompt tokens of the request, after checking that this policy can answer it.

        Raises SamplingUnsupported, or InvalidPredict naming the field, the value and what is allowed.
        """
        if request.mode is Mode.SAMPLE and self._exploration is None:
            raise SamplingUnsupported()
        if self.policy.state_dim and (
            request.state_BS is None or request.state_BS.shape[1:] != (self.policy.state_dim,)
        ):
            found = None if request.state_BS is None else list(request.state_BS.shape)
            raise InvalidPredict(f"state: shape {found}, allowed: [{len(request.features)}, {self.policy.state_dim}]")
        return sum(self._tokens(index, feature) for index, feature in enumerate(request.features))

    @torch.no_grad()
    def act(
        self, features: Sequence[Features], state_BS: np.ndarray | None, *, seeds: Sequence[int], mode: Mode
    ) -> Decision:
        """One chunk per observation, from its own seed. Raises NonFiniteActions, or what the head raises."""
        state = self.policy.model_state(state_BS)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        trace: Mapping[str, Tensor] | None = None
        if mode is Mode.SAMPLE:
            assert self._exploration is not None
            actions_BHA, trace = self._exploration.act_with_trace(features, state, generators)
        elif self._exploration is not None:
            actions_BHA = self._exploration.act(features, state, generators)
        else:
            actions_BHA = torch.cat([self._act_one(features, state, i, g) for i, g in enumerate(generators)])
        value_B = None if self._value is None else self._value(features, state)
        return self._decision(actions_BHA, trace, value_B)

    def _tokens(self, index: int, feature: VLAFeature) -> int:
        seen = [image.shape[:2] for image in feature.images]
        if seen != self._view_sizes:
            raise InvalidPredict(f"features[{index}].images: sizes {seen}, allowed: {self._view_sizes}")
        if feature.query_tokens != self.query_tokens:
            raise InvalidPredict(
                f"features[{index}].query_tokens: {feature.query_tokens}, allowed: {self.query_tokens} for this head"
            )
        try:
            return self.backbone.tokens(feature)
        except ValueError as error:
            raise InvalidPredict(f"features[{index}]: {error}") from error

    def _act_one(
        self, features: Sequence[Features], state: Tensor | None, index: int, generator: torch.Generator
    ) -> Tensor:
        own_state = None if state is None else state[index : index + 1]
        return self.policy.head.act(features[index : index + 1], own_state, generator)

    def _decision(self, actions_BHA: Tensor, trace: Mapping[str, Tensor] | None, value_B: Tensor | None) -> Decision:
        real_BHA = np.asarray(self.policy.actions.denormalize(actions_BHA.cpu().numpy()), dtype=np.float32)
        if not np.isfinite(real_BHA).all():
            raise NonFiniteActions()
        return Decision(
            actions_BHA=real_BHA,
            trace=None if trace is None else {name: value.detach().cpu() for name, value in trace.items()},
            value_B=None if value_B is None else value_B.cpu().numpy().astype(np.float32),
        )


def _frozen_copy(module: M) -> M:
    """An own copy that neither trains nor keeps gradients."""
    own = copy.deepcopy(module).eval().requires_grad_(False)
    for parameter in own.parameters():
        parameter.grad = None
    return own
