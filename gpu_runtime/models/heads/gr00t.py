"""Diffusion-transformer head with flow matching (GR00T N1.5 as StarVLA's QwenGR00T has it).

Shapes: B samples, K noise draws, H horizon, A action dims, S state dims, L condition tokens, W width.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gpu_runtime.models.heads import flow
from gpu_runtime.models.heads.base import Features, Head, HeadShape, LossParts, initialize, initialize_output
from gpu_runtime.models.heads.chunks import full_mask, hold_last_valid, masked_mean
from gpu_runtime.models.heads.dit import MAX_PERIOD, DiT, KeysValues
from gpu_runtime.models.heads.features import Standardizer, stack
from gpu_runtime.models.heads.flow_inputs import Condition, FlowInputs
from gpu_runtime.models.heads.inputs import required_state
from gpu_runtime.models.heads.randomness import Draws, draw_seed, normal
from gpu_runtime.models.heads.tenants import on_parts, spread
from gpu_runtime.protocol.specs import Gr00tHeadSpec


class Gr00tHead(Head):
    """Velocity of an action chunk under [state, future tokens, noisy actions], cross-attending to the backbone."""

    explorations = ("flow_sde", "flow_noise")

    def __init__(self, spec: Gr00tHeadSpec, shape: HeadShape) -> None:
        super().__init__(horizon=spec.horizon, shape=shape)
        self.tap, self.noise_draws, self.denoise_steps = spec.tap, spec.noise_draws, spec.denoise_steps
        self.hidden_widths = (spec.width, spec.output_width)
        width, source = spec.width, shape.feature_widths[spec.tap]
        self.standardizer, self.condition_norm = _condition(spec, source)
        self.fit_frames = spec.fit_frames if self.standardizer is not None else 0
        self.state_encoder = _mlp(shape.state_dim, spec.output_width, width) if shape.state_dim else None
        self.action_encoder = ActionEncoder(shape.action_dim, width)
        self.future_tokens = nn.Parameter(torch.zeros(spec.future_tokens, width))
        self.positions = nn.Parameter(torch.zeros(spec.horizon, width))
        self.dit = DiT(
            width=width,
            heads=spec.heads,
            layers=spec.layers,
            condition_width=source,
            output_width=spec.output_width,
            dropout=spec.dropout,
        )
        self.decoder = _mlp(spec.output_width, spec.output_width, shape.action_dim)

    @staticmethod
    def taps_of(spec: Gr00tHeadSpec) -> tuple[str, ...]:
        return (spec.tap,)

    @property
    def needs_fit(self) -> bool:
        return self.standardizer is not None and self.standardizer.tokens == 0

    def fit(self, features: Sequence[Features]) -> None:
        """Mean and spread of the condition over the tenant's frames."""
        if self.standardizer is not None:
            self.standardizer.fit(features, self.tap)

    def fit_shape(self) -> dict[str, int]:
        return {} if self.standardizer is None else {"tokens": self.standardizer.tokens}

    def allocate(self, fit_shape: Mapping[str, int]) -> None:
        if self.standardizer is not None:
            self.standardizer.allocate(fit_shape["tokens"])

    def reset_parameters(self, generator: torch.Generator) -> None:
        initialize(self, generator)
        self.dit.reset_residuals()
        initialize_output(self.decoder[-1], generator)  # type: ignore[arg-type]
        with torch.no_grad():
            for tokens in (self.future_tokens, self.positions):
                tokens.copy_(0.02 * torch.randn(tokens.shape, generator=generator))

    def inputs(
        self,
        features: Sequence[Features],
        state_BS: Tensor | None,
        actions_BHA: Tensor,
        mask_BH: Tensor | None,
        generator: torch.Generator,
    ) -> FlowInputs:
        mask_BH = full_mask(actions_BHA, mask_BH)
        draws, device = self.noise_draws, actions_BHA.device
        data_MHA = hold_last_valid(actions_BHA, mask_BH).repeat_interleave(draws, dim=0)
        noise_MHA = normal(tuple(data_MHA.shape), generator, device)
        time_M = flow.sample_time(data_MHA.shape[0], generator).to(device)
        return FlowInputs(
            noisy_MHA=flow.interpolate(noise_MHA, data_MHA, time_M),
            bucket_M=flow.bucket(time_M),
            target_MHA=flow.velocity(noise_MHA, data_MHA),
            mask_MH=mask_BH.repeat_interleave(draws, dim=0),
            state_BS=required_state(state_BS, self.shape.state_dim) if self.shape.state_dim else None,
            conditions=(self._observed(features),),
            seeds=(draw_seed(generator),),
        )

    def predict(self, inputs: FlowInputs) -> Tensor:
        """Velocity of each noisy chunk, [M, H, A], under dropout; K draws per sample are neighbours."""
        condition, draws = self._projected(inputs.conditions), Draws(inputs.seeds, inputs.noisy_MHA.device)
        return self._velocity(inputs.noisy_MHA, inputs.bucket_M, inputs.state_BS, condition, draws)

    def error(self, predicted: Tensor, inputs: FlowInputs) -> LossParts:
        """Squared error of the velocity over valid steps, averaged over K noise draws per sample."""
        total = masked_mean((predicted - inputs.target_MHA).square(), inputs.mask_MH)
        return LossParts(total=total, parts={"flow": total})

    def act(self, features: Sequence[Features], state_BS: Tensor | None, generator: torch.Generator) -> Tensor:
        """Euler integration from noise; the condition's keys and values are computed once."""
        shape = (len(features), self.horizon, self.shape.action_dim)
        return self.integrate(normal(shape, generator, self.positions.device), features, state_BS)

    def integrate(self, x_BHA: Tensor, features: Sequence[Features], state_BS: Tensor | None) -> Tensor:
        """The actions that this noise becomes, along the ODE."""
        condition = self._condition(features)
        for bucket in flow.euler_buckets(self.denoise_steps):
            bucket_B = torch.full((len(features),), float(bucket), device=x_BHA.device)
            velocity_BHA = self._velocity(x_BHA, bucket_B, state_BS, condition, None)
            x_BHA = flow.euler_step(x_BHA, velocity_BHA, self.denoise_steps)
        return x_BHA

    def field(self, features: Sequence[Features], state_BS: Tensor | None) -> "VelocityField":
        """The velocity as a function of chunk and time, dropout off: the one that imitation trains and acting runs."""
        return VelocityField(self, features, state_BS)

    def _condition(self, features: Sequence[Features]) -> list[list[KeysValues] | None]:
        return self._projected((self._observed(features),))

    def _observed(self, features: Sequence[Features]) -> Condition:
        x_BLD, mask_BL = stack(features, self.tap, self.shape.feature_widths[self.tap])
        return Condition(x_BLD=x_BLD if self.standardizer is None else self.standardizer(x_BLD), mask_BL=mask_BL)

    def _projected(self, conditions: Sequence[Condition]) -> list[list[KeysValues] | None]:
        parts = on_parts(self.condition_norm, [condition.x_BLD for condition in conditions])
        return self.dit.condition(parts, [condition.mask_BL for condition in conditions])

    def _velocity(
        self,
        x_MHA: Tensor,
        bucket_M: Tensor,
        state_BS: Tensor | None,
        condition: list[list[KeysValues] | None],
        draws: Draws | None,
    ) -> Tensor:
        """Velocity of M = B*K noisy chunks; draws of one sample are neighbours."""
        return self.decoder(self._hidden(x_MHA, bucket_M, state_BS, condition, draws)).flatten(0, 1)

    def _hidden(
        self,
        x_MHA: Tensor,
        bucket_M: Tensor,
        state_BS: Tensor | None,
        condition: list[list[KeysValues] | None],
        draws: Draws | None,
    ) -> Tensor:
        """Hidden action tokens, [B, K, H, output width]; the decoder makes velocities of them."""
        chunks = x_MHA.shape[0]
        per_sample = chunks // _samples(condition)
        tokens = [
            spread(self.future_tokens, chunks),
            self.action_encoder(x_MHA, bucket_M) + spread(self.positions, chunks),
        ]
        if self.state_encoder is not None:
            state_BW = self.state_encoder(required_state(state_BS, self.shape.state_dim))
            tokens.insert(0, state_BW.repeat_interleave(per_sample, dim=0)[:, None])
        x_BKQW = torch.cat(tokens, dim=1).unflatten(0, (-1, per_sample))
        out_BKQW = self.dit(x_BKQW, bucket_M.view(-1, per_sample), condition, draws)
        return out_BKQW[:, :, -self.horizon :]


class VelocityField:
    """A head's velocity for one batch; its condition is computed once."""

    def __init__(self, head: Gr00tHead, features: Sequence[Features], state_BS: Tensor | None) -> None:
        self.head, self.state_BS = head, state_BS
        self.condition = head._condition(features)

    def __call__(self, x_MHA: Tensor, step_M: Tensor) -> tuple[Tensor, Tensor]:
        """Velocity [M, H, A] at denoising step ``step_M`` of each chunk, and the hidden tokens [M, H, width]."""
        buckets = torch.tensor(flow.euler_buckets(self.head.denoise_steps), device=x_MHA.device)
        bucket_M = buckets[step_M].float()
        hidden_BKHW = self.head._hidden(x_MHA, bucket_M, self.state_BS, self.condition, None)
        return self.head.decoder(hidden_BKHW).flatten(0, 1), hidden_BKHW.flatten(0, 1)


class ActionEncoder(nn.Module):
    """a = W1 x; W3 swish(W2 [a; sincos(time)])."""

    def __init__(self, action_dim: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Linear(action_dim, width)
        self.second = nn.Linear(2 * width, width)
        self.third = nn.Linear(width, width)

    def forward(self, x_MHA: Tensor, bucket_M: Tensor) -> Tensor:
        a_MHW = self.first(x_MHA)
        time_MHW = _sincos(bucket_M, self.width)[:, None].expand_as(a_MHW)
        return self.third(nn.functional.silu(self.second(torch.cat([a_MHW, time_MHW], dim=-1))))


def _samples(condition: list[list[KeysValues] | None]) -> int:
    """Samples in the batch; layer 0 always attends to the condition."""
    assert condition[0] is not None
    return sum(keys.shape[0] for keys, _, _ in condition[0])


def _sincos(bucket_M: Tensor, width: int) -> Tensor:
    """[sin, cos] at frequencies exp(-i ln(10000) / (width / 2))."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, device=bucket_M.device) * (-math.log(MAX_PERIOD) / half))
    angles = bucket_M[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _condition(spec: Gr00tHeadSpec, width: int) -> tuple[Standardizer | None, nn.Module]:
    """The treatment of the condition before its key and value projections."""
    if spec.condition == "standardized":
        # text and image tokens of a layer tap differ in number from prompt to prompt; image taps are a fixed grid
        return Standardizer(width, per_token=not spec.tap.startswith("layer:")), nn.Identity()
    return None, nn.LayerNorm(width) if spec.condition == "layer_norm" else nn.Identity()


def _mlp(size_in: int, hidden: int, size_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size_in, hidden), nn.ReLU(), nn.Linear(hidden, size_out))
