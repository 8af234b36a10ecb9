"""Chunk regression on the whitened image-token grid: what works best on a small random base.

Shapes: B samples, H horizon, A action dims, S state dims, P principal components, W head width.
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
from gpu_runtime.models.heads.inputs import required_state
from gpu_runtime.models.heads.randomness import Draws, draw_seed, dropout, jitter, on_device
from gpu_runtime.models.heads.whitening import Whitening
from gpu_runtime.protocol.specs import MlpHeadSpec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MlpInputs:
    """Whitened grid and state, noise included, and what is to be predicted."""

    x_BP: Tensor  # [B, P + S]
    target_BHA: Tensor
    mask_BH: Tensor
    seeds: tuple[int, ...]  # of dropout, by tenant

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """Equal for batches that can be joined."""
        return tuple(self.x_BP.shape)

    @staticmethod
    def join(parts: Sequence["MlpInputs"]) -> "MlpInputs":
        """Several tenants' rows, one behind another."""
        return MlpInputs(
            x_BP=torch.cat([part.x_BP for part in parts]),
            target_BHA=torch.cat([part.target_BHA for part in parts]),
            mask_BH=torch.cat([part.mask_BH for part in parts]),
            seeds=tuple(seed for part in parts for seed in part.seeds),
        )


class MlpHead(Head):
    """Residual MLP from [whitened grid, state] to the whole chunk. Deterministic, one pass, L1."""

    explorations = ("gaussian",)

    def __init__(self, spec: MlpHeadSpec, shape: HeadShape) -> None:
        super().__init__(horizon=spec.horizon, shape=shape)
        self.tap, self.input_noise, self.dropout = spec.tap, spec.input_noise, spec.dropout
        self.fit_frames, self.hidden_widths = spec.pca_frames, (spec.width,)
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

    def forward(self, features: Sequence[Features], state_BS: Tensor | None) -> Tensor:
        """Actions in model space, [B, H, A]."""
        return self._chunk(self._input(features, state_BS), None)

    def inputs(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> MlpInputs:
        mask_BH, device = full_mask(actions_BHA, mask_BH), actions_BHA.device
        return MlpInputs(
            x_BP=jitter(self._input(features, state_BS), self.input_noise, on_device(generator, device)),
            target_BHA=hold_last_valid(actions_BHA, mask_BH),
            mask_BH=mask_BH,
            seeds=(draw_seed(generator),),
        )

    def predict(self, inputs: MlpInputs) -> Tensor:
        """Actions in model space, [B, H, A], under dropout."""
        return self._chunk(inputs.x_BP, Draws(inputs.seeds, inputs.x_BP.device))

    def error(self, predicted: Tensor, inputs: MlpInputs) -> LossParts:
        """Mean absolute error over valid steps."""
        total = masked_mean((predicted - inputs.target_BHA).abs(), inputs.mask_BH)
        return LossParts(total=total, parts={"l1": total})

    def _input(self, features: Sequence[Features], state_BS: Tensor | None) -> Tensor:
        x_BP = self.whitening(features, self.tap)
        if not self.shape.state_dim:
            return x_BP
        return torch.cat([x_BP, required_state(state_BS, self.shape.state_dim)], dim=-1)

    def _chunk(self, x_BP: Tensor, draws: Draws | None) -> Tensor:
        x_BW = self.project(x_BP)
        for block in self.blocks:
            x_BW = x_BW + dropout(block(x_BW), self.dropout, draws)
        return self.out(self.norm_out(x_BW)).unflatten(-1, (self.horizon, self.shape.action_dim))

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
