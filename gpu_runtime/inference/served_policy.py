"""A published policy: a frozen copy that acts, whatever training does to the original meanwhile.

Shapes: B observations, H horizon, C executed steps, A action dims, S state dims.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.inference.errors import InvalidPredict, NonFiniteOutput, SamplingUnsupported
from gpu_runtime.inference.messages import Mode, PredictRequest
from gpu_runtime.models.actor_critic import ActorCritic
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.lora.identity import freeze_adapter
from gpu_runtime.models.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """Chunks in real units, [B, 0, A] where only the value was asked for; trace and value where the mode has them."""

    actions_BHA: np.ndarray
    trace: dict[str, Tensor] | None = None
    value: np.ndarray | None = None  # [B] or [B, C]


class ServedPolicy:
    """Immutable. Made by ``freeze`` in the thread that trains the original; acts in the compute thread."""

    def __init__(self, policy: Policy, backbone: Backbone, models: ActorCritic | None = None) -> None:
        self.policy, self.backbone, self._models = policy, backbone, models
        self.lora = policy.lora  # what its features are made with, frozen like the head
        self.taps = policy.taps  # the critic reads what the head reads
        self.query_tokens = policy.query_tokens
        self._view_sizes = [(view.height, view.width) for view in policy.views]
        self.prefix_hash = policy.signature(backbone).hash

    @classmethod
    def freeze(cls, trained: Policy | ActorCritic, backbone: Backbone) -> "ServedPolicy":
        """Copy the weights: of a policy, which can be evaluated; or with its exploration and critic.

        Raises ValueError for a tap that this base doesn't have.
        """
        for tap in (trained if isinstance(trained, Policy) else trained.policy).taps:
            backbone.tap_width(tap)
        if isinstance(trained, Policy):
            return cls(_frozen_copy(trained), backbone)
        models = trained.snapshot()
        return cls(models.policy, backbone, models)

    @property
    def group_key(self) -> str:
        return self.backbone.group_key

    def tokens(self, request: PredictRequest) -> int:
        """Prompt tokens of the request, after checking that this policy can answer it.

        Raises SamplingUnsupported, or InvalidPredict naming the field, the value and what is allowed.
        """
        self._check_mode(request)
        expected = (self.policy.state_dim,)
        if self.policy.state_dim and (request.state_BS is None or request.state_BS.shape[1:] != expected):
            found = None if request.state_BS is None else list(request.state_BS.shape)
            raise InvalidPredict(f"state: shape {found}, allowed: [{len(request.features)}, {self.policy.state_dim}]")
        for index, feature in enumerate(request.features):
            self._check_prompt(index, feature)
        return self.backbone.tokens_together(request.features)

    @torch.no_grad()
    def act(self, features: Sequence[Features], request: PredictRequest) -> Decision:
        """One chunk per observation, from its own seed. Raises NonFiniteOutput, or what the head raises."""
        state_BS, seeds = request.state_BS, request.seeds
        trace: Mapping[str, Tensor] | None = None
        if request.mode is Mode.VALUE:
            actions_BHA = np.zeros((len(features), 0, self.policy.schema.action.dim), np.float32)
        elif request.mode is Mode.SAMPLE:
            assert self._models is not None, "checked at admission"
            actions_BHA, trace = self._models.act_with_trace(features, state_BS, seeds=seeds)
        elif self._models is not None:
            actions_BHA = self._models.act(features, state_BS, seeds=seeds)
        else:
            actions_BHA = self._act_each(features, state_BS, seeds)
        value = self._value(features, request)
        if not np.isfinite(actions_BHA).all() or (value is not None and not np.isfinite(value).all()):
            raise NonFiniteOutput()
        kept = None if trace is None else {name: part.detach().cpu() for name, part in trace.items()}
        return Decision(actions_BHA=actions_BHA, trace=kept, value=value)

    def _act_each(self, features: Sequence[Features], state_BS: np.ndarray | None, seeds: Sequence[int]) -> np.ndarray:
        """A head has one generator per call, so that a seed's noise does not depend on its neighbours."""
        chunks = [
            self.policy.act([rows], None if state_BS is None else state_BS[at : at + 1], seed=seed)
            for at, (rows, seed) in enumerate(zip(features, seeds, strict=True))
        ]
        return np.concatenate(chunks)

    def _value(self, features: Sequence[Features], request: PredictRequest) -> np.ndarray | None:
        if request.mode is Mode.EVAL or self._models is None or self._models.critic is None:
            return None
        return self._models.value(features, request.state_BS, request.progress_B).cpu().numpy()

    def _check_mode(self, request: PredictRequest) -> None:
        critic = None if self._models is None else self._models.critic
        if request.mode is Mode.SAMPLE and self._models is None:
            raise SamplingUnsupported()
        if request.mode is Mode.VALUE and critic is None:
            raise InvalidPredict(f"mode: {request.mode}, allowed: eval and sample; the policy has no critic")
        told = critic is not None and critic.episode_progress and request.mode is not Mode.EVAL
        if told != (request.progress_B is not None):
            found, allowed = ("missing", "[0, 1] for this critic") if told else ("given", "none for this request")
            raise InvalidPredict(f"progress: {found}, allowed: {allowed}")

    def _check_prompt(self, index: int, feature: VLAFeature) -> None:
        seen = [image.shape[:2] for image in feature.images]
        if seen != self._view_sizes:
            raise InvalidPredict(f"features[{index}].images: sizes {seen}, allowed: {self._view_sizes}")
        if feature.query_tokens != self.query_tokens:
            raise InvalidPredict(
                f"features[{index}].query_tokens: {feature.query_tokens}, allowed: {self.query_tokens} for this head"
            )
        try:
            self.backbone.tokens(feature)
        except ValueError as error:
            raise InvalidPredict(f"features[{index}]: {error}") from error


def _frozen_copy(policy: Policy) -> Policy:
    """Own weights that neither train nor keep gradients; normalisation and schema are immutable and shared."""
    own = copy.copy(policy)
    own.head = copy.deepcopy(policy.head).eval().requires_grad_(False)
    for parameter in own.head.parameters():
        parameter.grad = None
    if policy.lora is not None:
        own.lora = freeze_adapter(copy.deepcopy(policy.lora))
    return own
