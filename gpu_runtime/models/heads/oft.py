"""Parallel regression from action-query tokens (OpenVLA-OFT as StarVLA's QwenOFT has it).

Shapes: B samples, H horizon = queries, A action dims, S state dims, D feature width, W = expansion * D.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpu_runtime.models.heads.base import (
    Features,
    Head,
    HeadShape,
    LossParts,
    initialize,
    initialize_branch,
    initialize_output,
)
from gpu_runtime.models.heads.chunks import full_mask, hold_last_valid, masked_mean
from gpu_runtime.models.heads.features import Standardizer, stack_grid
from gpu_runtime.models.heads.inputs import required_state
from gpu_runtime.protocol.specs import OftHeadSpec

TAP = "query"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OftInputs:
    """Standardised queries, the state, and what is to be predicted."""

    x_BHD: Tensor
    state_BS: Tensor | None
    target_BHA: Tensor
    mask_BH: Tensor

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """Equal for batches that can be joined."""
        return tuple(self.x_BHD.shape)

    @staticmethod
    def join(parts: Sequence["OftInputs"]) -> "OftInputs":
        """Several tenants' rows, one behind another."""
        states = [part.state_BS for part in parts if part.state_BS is not None]
        return OftInputs(
            x_BHD=torch.cat([part.x_BHD for part in parts]),
            state_BS=torch.cat(states) if states else None,
            target_BHA=torch.cat([part.target_BHA for part in parts]),
            mask_BH=torch.cat([part.mask_BH for part in parts]),
        )


class OftHead(Head):
    """One MLP-ResNet applied to each query token: query h -> action h. Deterministic, one pass, L1."""

    explorations = ("gaussian",)

    def __init__(self, spec: OftHeadSpec, shape: HeadShape) -> None:
        super().__init__(horizon=spec.horizon, shape=shape)
        width = shape.feature_widths[TAP]
        self.query_tokens, self.hidden_widths = spec.horizon, (spec.expansion * width,)
        self.fit_frames = spec.fit_frames if spec.standardize else 0
        self.standardizer = Standardizer(width, per_token=True) if spec.standardize else None
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, spec.expansion * width)
        # StarVLA's head sees no state; this adds it before the first block, starting from zero. (OpenVLA-OFT appends
        # a state token to the prompt instead, which would put tenant weights into the shared prefix.)
        self.state = _state_projector(shape.state_dim, spec.expansion * width) if shape.state_dim else None
        self.blocks = nn.ModuleList(ResidualBlock(spec.expansion * width) for _ in range(spec.blocks))
        self.norm_out = nn.LayerNorm(spec.expansion * width)
        self.out = nn.Linear(spec.expansion * width, shape.action_dim)

    @staticmethod
    def taps_of(spec: OftHeadSpec) -> tuple[str, ...]:
        return (TAP,)

    @property
    def needs_fit(self) -> bool:
        return self.standardizer is not None and self.standardizer.tokens == 0

    def fit(self, features: Sequence[Features]) -> None:
        """Mean and spread of every query feature over the tenant's frames."""
        if self.standardizer is not None:
            self.standardizer.fit(features, TAP)

    def fit_shape(self) -> dict[str, int]:
        return {} if self.standardizer is None else {"tokens": self.standardizer.tokens}

    def allocate(self, fit_shape: Mapping[str, int]) -> None:
        if self.standardizer is not None:
            self.standardizer.allocate(fit_shape["tokens"])

    def reset_parameters(self, generator: torch.Generator) -> None:
        initialize(self, generator)
        initialize_output(self.out, generator)
        if self.state is not None:
            initialize_branch(self.state[2])  # type: ignore[arg-type]

    def forward(self, features: Sequence[Features], state_BS: Tensor | None) -> Tensor:
        """Actions in model space, [B, H, A]. Raises FeatureMismatch unless there is one query per step."""
        return self._chunk(self._queries(features), self._state(state_BS))

    def inputs(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> OftInputs:
        mask_BH = full_mask(actions_BHA, mask_BH)
        return OftInputs(
            x_BHD=self._queries(features),
            state_BS=self._state(state_BS),
            target_BHA=hold_last_valid(actions_BHA, mask_BH),
            mask_BH=mask_BH,
        )

    def predict(self, inputs: OftInputs) -> Tensor:
        """Actions in model space, [B, H, A]."""
        return self._chunk(inputs.x_BHD, inputs.state_BS)

    def error(self, predicted: Tensor, inputs: OftInputs) -> LossParts:
        """Mean absolute error over valid steps."""
        total = masked_mean((predicted - inputs.target_BHA).abs(), inputs.mask_BH)
        return LossParts(total=total, parts={"l1": total})

    def _queries(self, features: Sequence[Features]) -> Tensor:
        x_BHD = stack_grid(features, TAP, self.shape.feature_widths[TAP], self.horizon)
        return x_BHD if self.standardizer is None else self.standardizer(x_BHD)

    def _state(self, state_BS: Tensor | None) -> Tensor | None:
        return required_state(state_BS, self.shape.state_dim) if self.shape.state_dim else None

    def _chunk(self, x_BHD: Tensor, state_BS: Tensor | None) -> Tensor:
        x_BHW = self.project(self.norm(x_BHD))
        if self.state is not None:
            x_BHW = x_BHW + self.state(state_BS)[:, None]
        x_BHW = torch.relu(x_BHW)
        for block in self.blocks:
            x_BHW = block(x_BHW)
        return self.out(self.norm_out(x_BHW))

    def act(self, features: Sequence[Features], state_BS: Tensor | None, generator: torch.Generator) -> Tensor:
        return self(features, state_BS)


class ResidualBlock(nn.Module):
    """x + ReLU(Linear(LayerNorm(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(self.norm(x)))


def _state_projector(state_dim: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(state_dim, width), nn.GELU(), nn.Linear(width, width))
