"""Parallel regression from action-query tokens (OpenVLA-OFT as StarVLA's QwenOFT has it).

Shapes: B samples, H horizon = queries, A action dims, S state dims, D feature width, W = expansion * D.
"""

from collections.abc import Mapping, Sequence

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


class OftHead(Head):
    """One MLP-ResNet applied to each query token: query h -> action h. Deterministic, one pass, L1."""

    explorations = ("gaussian",)

    def __init__(self, spec: OftHeadSpec, shape: HeadShape) -> None:
        super().__init__(horizon=spec.horizon, shape=shape)
        width = shape.feature_widths[TAP]
        self.query_tokens = spec.horizon
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
        x_BHD = stack_grid(features, TAP, self.norm.normalized_shape[0], self.horizon)
        if self.standardizer is not None:
            x_BHD = self.standardizer(x_BHD)
        x_BHW = self.project(self.norm(x_BHD))
        if self.state is not None:
            x_BHW = x_BHW + self.state(required_state(state_BS, self.shape.state_dim))[:, None]
        x_BHW = torch.relu(x_BHW)
        for block in self.blocks:
            x_BHW = block(x_BHW)
        return self.out(self.norm_out(x_BHW))

    def loss(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> LossParts:
        """Mean absolute error over valid steps."""
        mask_BH = full_mask(actions_BHA, mask_BH)
        error_BHA = (self(features, state_BS) - hold_last_valid(actions_BHA, mask_BH)).abs()
        total = masked_mean(error_BHA, mask_BH)
        return LossParts(total=total, parts={"l1": total})

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
