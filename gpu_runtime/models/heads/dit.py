"""Diffusion transformer with adaptive layer norm: even layers attend to the condition, odd layers to themselves.

Shapes: B samples, K noise draws per sample, Q tokens per draw, L condition tokens, D condition width, W width,
N attention heads, C = W / N.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu

from gpu_runtime.models.heads.base import initialize_branch
from gpu_runtime.models.heads.randomness import Draws, dropout
from gpu_runtime.models.heads.tenants import on_parts

TIME_FEATURES = 256
MAX_PERIOD = 10_000.0

KeysValues = tuple[Tensor, Tensor, Tensor | None]  # keys and values [B, N, L, C], mask [B, 1, 1, L]


class DiT(nn.Module):
    """[B, K, Q, W] tokens, a condition and an integer time per draw -> [B, K, Q, output_width].

    Draws of one sample share its condition: its keys and values are projected once, and never copied K times.
    """

    def __init__(
        self, *, width: int, heads: int, layers: int, condition_width: int, output_width: int, dropout: float
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.time = nn.Sequential(nn.Linear(TIME_FEATURES, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(
            Block(width=width, heads=heads, condition_width=condition_width if i % 2 == 0 else None, dropout=dropout)
            for i in range(layers)
        )
        self.modulation_out = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, output_width)

    def reset_residuals(self) -> None:
        """Start every adaptive norm as a plain one and every block as the identity."""
        initialize_branch(self.modulation_out)
        for block in self._typed_blocks():
            for layer in (block.modulation, block.out, block.down):
                initialize_branch(layer)

    def condition(self, parts: Sequence[Tensor], masks: Sequence[Tensor | None]) -> list[list[KeysValues] | None]:
        """Keys and values of every layer (None for self-attention): one projection serves all draws and steps.

        ``parts`` [B, L, D] are one for everybody, or one for each tenant; ``masks`` [B, L] are True at real tokens,
        None where all are.
        """
        return [None if b.condition_width is None else b.conditions(parts, masks) for b in self._typed_blocks()]

    def _typed_blocks(self) -> list["Block"]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def forward(
        self,
        x_BKQW: Tensor,
        bucket_BK: Tensor,
        condition: Sequence[list[KeysValues] | None],
        draws: Draws | None = None,
    ) -> Tensor:
        """``draws`` None: no dropout."""
        time_BKW = silu(self.time(time_features(bucket_BK, TIME_FEATURES)))
        for block, keys_values in zip(self.blocks, condition, strict=True):
            x_BKQW = block(x_BKQW, time_BKW, keys_values, draws)
        shift, scale = self.modulation_out(time_BKW)[:, :, None].chunk(2, dim=-1)
        x_BKQW = dropout(x_BKQW, self.dropout, draws)
        return self.out(plain_norm(x_BKQW) * (1 + scale) + shift)


class Block(nn.Module):
    """Adaptive norm, attention, residual; norm, feed-forward, residual."""

    def __init__(self, *, width: int, heads: int, condition_width: int | None, dropout: float) -> None:
        super().__init__()
        self.heads, self.condition_width, self.dropout = heads, condition_width, dropout
        source = width if condition_width is None else condition_width
        self.modulation = nn.Linear(width, 2 * width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(source, width)
        self.value = nn.Linear(source, width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def conditions(self, parts: Sequence[Tensor], masks: Sequence[Tensor | None]) -> list[KeysValues]:
        """Keys and values of each part, split into heads, with its mask."""
        keys, values = on_parts(self.key, parts), on_parts(self.value, parts)
        return [
            (self._split(key), self._split(value), None if mask is None else mask[:, None, None, :])
            for key, value, mask in zip(keys, values, masks, strict=True)
        ]

    def forward(
        self,
        x_BKQW: Tensor,
        time_BKW: Tensor,
        condition: list[KeysValues] | None,
        draws: Draws | None,
    ) -> Tensor:
        scale, shift = self.modulation(time_BKW)[:, :, None].chunk(2, dim=-1)
        normed = plain_norm(x_BKQW) * (1 + scale) + shift
        attended = self._attend(normed) if condition is None else self._attend_to(normed, condition)
        x_BKQW = x_BKQW + dropout(self.out(attended), self.dropout, draws)
        hidden = self.down(dropout(gelu(self.up(plain_norm(x_BKQW)), approximate="tanh"), self.dropout, draws))
        return x_BKQW + dropout(hidden, self.dropout, draws)

    def _attend(self, x_BKQW: Tensor) -> Tensor:
        """Self-attention among the tokens of one draw."""
        flat = x_BKQW.flatten(0, 1)
        queries, keys, values = (self._split(layer(flat)) for layer in (self.query, self.key, self.value))
        return self._merge(scaled_dot_product_attention(queries, keys, values)).view_as(x_BKQW)

    def _attend_to(self, x_BKQW: Tensor, condition: list[KeysValues]) -> Tensor:
        """Cross-attention: all K*Q tokens of a sample are queries on its one set of keys and values."""
        queries = self._split(self.query(x_BKQW.flatten(1, 2))).chunk(len(condition))
        attended = [
            self._merge(scaled_dot_product_attention(queries_BNQC, keys, values, attn_mask=mask))
            for queries_BNQC, (keys, values, mask) in zip(queries, condition, strict=True)
        ]
        return (attended[0] if len(attended) == 1 else torch.cat(attended)).view_as(x_BKQW)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def _merge(self, x: Tensor) -> Tensor:
        return x.transpose(-2, -3).flatten(-2)


def plain_norm(x: Tensor) -> Tensor:
    """Layer norm without learned scale and shift."""
    return layer_norm(x, x.shape[-1:])


def time_features(bucket: Tensor, size: int) -> Tensor:
    """[cos, sin] of the integer time at geometric frequencies from 1 to 1 / 10000 inclusive."""
    exponents = torch.arange(size // 2, device=bucket.device) / (size // 2 - 1)
    angles = bucket[..., None] * torch.exp(-math.log(MAX_PERIOD) * exponents)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)
