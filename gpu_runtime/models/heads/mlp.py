"""Chunk regression on the whitened image-token grid: what works best on a small random base.

Shapes: B samples, H horizon, A action dims, S state dims, P principal components, W head width.
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
from gpu_runtime.models.heads.inputs import required_state
from gpu_runtime.models.heads.randomness import dropout, jitter, on_device
from gpu_runtime.models.heads.whitening import Whitening
from gpu_runtime.protocol.specs import MlpHeadSpec


class MlpHead(Head):
    """Residual MLP from [whitened grid, state] to the whole chunk. Deterministic, one pass, L1."""

    explorations = ("gaussian",)

    def __init__(self, spec: MlpHeadSpec, shape: HeadShape) -> None:
        super().__init__(horizon=spec.horizon, shape=shape)
        self.tap, self.input_noise, self.dropout = spec.tap, spec.input_noise, spec.dropout
        self.fit_frames = spec.pca_frames
        self.whitening = Whitening(shape.feature_widths[spec.tap], spec.pca_dims)
        self.project = nn.Linear(spec.pca_dims + shape.state_dim, spec.width)
        self.blocks = nn.ModuleList(ResidualBlock(spec.width) for _ in range(spec.blocks))
        self.norm_out = nn.LayerNorm(spec.width)
        self.out = nn.Linear(spec.width, spec.horizon * shape.action_dim)

    @staticmethod
    def taps_of(spec: MlpHeadSpec) -> tuple[str, ...]:
        return (spec.tap,)

    @property
    def needs_fit(self) -> bool:
        return self.whitening.tokens == 0

    def fit(self, features: Sequence[Features]) -> None:
        """Principal components of the token grid over the tenant's frames."""
        self.whitening.fit(features, self.tap)

    def fit_shape(self) -> dict[str, int]:
        return {"tokens": self.whitening.tokens}

    def allocate(self, fit_shape: Mapping[str, int]) -> None:
        self.whitening.allocate(fit_shape["tokens"])

    def reset_parameters(self, generator: torch.Generator) -> None:
        initialize(self, generator)
        initialize_output(self.out, generator)
        for block in self.blocks:
            initialize_branch(block.down)  # type: ignore[union-attr,arg-type]

    def forward(
        self, features: Sequence[Features], state_BS: Tensor | None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Actions in model space, [B, H, A]. ``generator`` (training) switches input noise and dropout on."""
        x_BP = self.whitening(features, self.tap)
        if self.shape.state_dim:
            x_BP = torch.cat([x_BP, required_state(state_BS, self.shape.state_dim)], dim=-1)
        x_BW = self.project(jitter(x_BP, self.input_noise, generator))
        for block in self.blocks:
            x_BW = x_BW + dropout(block(x_BW), self.dropout, generator)
        return self.out(self.norm_out(x_BW)).unflatten(-1, (self.horizon, self.shape.action_dim))

    def loss(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> LossParts:
        """Mean absolute error over valid steps, under input noise and dropout."""
        mask_BH = full_mask(actions_BHA, mask_BH)
        local = on_device(generator, actions_BHA.device)
        error_BHA = (self(features, state_BS, local) - hold_last_valid(actions_BHA, mask_BH)).abs()
        total = masked_mean(error_BHA, mask_BH)
        return LossParts(total=total, parts={"l1": total})

    def act(self, features: Sequence[Features], state_BS: Tensor | None, generator: torch.Generator) -> Tensor:
        return self(features, state_BS)


class ResidualBlock(nn.Module):
    """Linear(GELU(Linear(LayerNorm(x)))); the caller adds it to x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x_BW: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(x_BW))))
