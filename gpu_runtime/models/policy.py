"""A tenant's policy: head, normalisation and schema. What rollouts, evaluation and exported adapters share.

Shapes: B samples, H horizon, A action dims, S state dims.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from gpu_runtime.batching.signature import ImageView, PrefixSignature
from gpu_runtime.data.normalize import Normalizer
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.action_error import ActionError
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.errors import BatchMismatch, HeadConfigurationError
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.heads.registry import build_head
from gpu_runtime.models.lora.adapter import AdaptableBase, LoraAdapter
from gpu_runtime.models.lora.identity import adapter_identity
from gpu_runtime.protocol.schema import DatasetSchema, DatasetStatistics
from gpu_runtime.protocol.specs import SftJobSpec

LORA_STREAM = 0x10A  # keeps an adapter's first weights apart from the head's
STATE_MODE = "mean_std"  # proprioception is z-scored with a floor under the spread, whatever the actions use


class Policy:
    """Model space inside, units of the robot outside; statistics are the stored ones, always."""

    def __init__(
        self,
        *,
        spec: SftJobSpec,
        schema: DatasetSchema,
        statistics: DatasetStatistics,
        tap_width: Callable[[str], int],
        device: torch.device | str = "cpu",
        base: AdaptableBase | None = None,
    ) -> None:
        """Untrained, drawn from the job's seed; ``base`` is what an adapter that the spec asks for is made for.

        Raises HeadConfigurationError for a state or a base that isn't there.
        """
        self.spec, self.schema, self.statistics = spec, schema, statistics
        self.device = torch.device(device)
        self.state_dim = _state_dim(spec, schema, statistics)
        self.actions = Normalizer.from_statistics(statistics.action, spec.normalization, schema.action.names)
        self.states = _state_normalizer(schema, statistics) if self.state_dim else None
        self.head = build_head(
            spec.head,
            action_dim=schema.action.dim,
            state_dim=self.state_dim,
            tap_width=tap_width,
            generator=torch.Generator().manual_seed(spec.training.seed),
        ).to(self.device)
        self.lora = None if spec.lora is None else _adapter(spec, base)

    @property
    def taps(self) -> frozenset[str]:
        """Backbone outputs the policy reads."""
        return self.head.taps()

    @property
    def query_tokens(self) -> int:
        """Action queries its prompt ends with."""
        return self.head.query_tokens

    @property
    def views(self) -> tuple[ImageView, ...]:
        """The cameras the policy sees, in prompt order, at its own image size. Raises HeadConfigurationError."""
        by_key = {camera.key: camera for camera in self.schema.cameras}
        wanted = self.spec.dataset.cameras if self.spec.dataset.cameras is not None else tuple(by_key)
        if missing := [key for key in wanted if key not in by_key]:
            raise HeadConfigurationError(f"dataset.cameras: {missing[0]!r} does not exist, allowed: {list(by_key)}")
        size = self.spec.dataset.image_size
        return tuple(
            ImageView(key=key, height=size, width=size, rotation_deg=by_key[key].rotation_deg) for key in wanted
        )

    def signature(self, backbone: Backbone) -> PrefixSignature:
        """The prefix contract of this policy on ``backbone``: with an adapter its features are its own."""
        prefix = backbone.signature(views=self.views, query_tokens=self.query_tokens, taps=self.taps)
        return prefix if self.lora is None else replace(prefix, adapter=adapter_identity(self.lora))

    @property
    def horizon(self) -> int:
        """Actions per chunk."""
        return self.head.horizon

    def model_state(self, state_BS: np.ndarray | None) -> torch.Tensor | None:
        """Normalised state on the device; None when the policy sees none. Raises BatchMismatch."""
        if self.states is None:
            return None
        if state_BS is None or state_BS.shape[1:] != (self.state_dim,):
            found = None if state_BS is None else list(state_BS.shape)
            raise BatchMismatch(f"state: shape {found}, allowed: [samples, {self.state_dim}]")
        return torch.as_tensor(self.states.normalize(state_BS), dtype=torch.float32, device=self.device)

    def check_statistics(self, actions_NA: np.ndarray, states_NS: np.ndarray | None) -> None:
        """Raise ForeignStatistics, naming the dimension, unless this whole dataset fits the stored statistics."""
        self.actions.check_own(actions_NA)
        if self.states is not None and states_NS is not None:
            self.states.check_own(states_NS)

    def model_actions(self, actions_BHA: np.ndarray) -> torch.Tensor:
        """Normalised action chunks on the device. Raises BatchMismatch."""
        expected = (self.horizon, self.schema.action.dim)
        if actions_BHA.shape[1:] != expected:
            raise BatchMismatch(
                f"actions: shape {list(actions_BHA.shape)}, allowed: [samples, {', '.join(map(str, expected))}]"
            )
        return torch.as_tensor(self.actions.normalize(actions_BHA), dtype=torch.float32, device=self.device)

    def act(self, features: Sequence[Features], state_BS: np.ndarray | None, *, seed: int) -> np.ndarray:
        """Action chunks in real units, float32 [B, H, A]; ``seed`` determines the noise."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            actions_BHA = self.head.act(features, self.model_state(state_BS), generator)
        return np.asarray(self.actions.denormalize(actions_BHA.cpu().numpy()), dtype=np.float32)

    def evaluate(self, features: Sequence[Features], batch: SampleBatch) -> ActionError:
        """Error on these samples. The noise is the same at every evaluation; training draws nothing from it."""
        return ActionError.measure(
            names=self.schema.action.names,
            predicted_BHA=self.act(features, batch.state_BS, seed=self.spec.training.seed),
            actual_BHA=batch.actions_BHA,
            mask_BH=batch.mask_BH,
            mean_action_A=np.asarray(self.statistics.action.mean),
        )


def _adapter(spec: SftJobSpec, base: AdaptableBase | None) -> LoraAdapter:
    """The updates that the spec asks for, at their start: they change nothing yet."""
    assert spec.lora is not None
    if base is None:
        raise HeadConfigurationError("lora: given, allowed: none where the policy is made without its base")
    adapter = LoraAdapter(spec.lora, base)
    adapter.reset_parameters(torch.Generator().manual_seed(spec.training.seed ^ (LORA_STREAM << 32)))
    return adapter


def _state_dim(spec: SftJobSpec, schema: DatasetSchema, statistics: DatasetStatistics) -> int:
    if not spec.dataset.use_state:
        return 0
    if schema.state is None or statistics.state is None:
        missing = "schema.state" if schema.state is None else "statistics.state"
        raise HeadConfigurationError(f"dataset.use_state is true, but {missing} is missing; allowed: false")
    return schema.state.dim


def _state_normalizer(schema: DatasetSchema, statistics: DatasetStatistics) -> Normalizer:
    assert schema.state is not None
    assert statistics.state is not None
    return Normalizer.from_statistics(statistics.state, STATE_MODE, schema.state.names)
