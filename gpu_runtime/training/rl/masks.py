"""Masked reductions: a mask is broadcast to the full shape before anything is summed or counted.

Dividing a sum over [N, C, A] by the count of an [N, C] mask would make losses, gradients and fractions A times too
large as soon as a mask is given. Whatever lies behind a mask (even NaN) reaches neither a value nor a gradient.

Shapes: a mask's dimensions are the leading dimensions of the tensor it belongs to, each equal or of size 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import RolloutMismatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Of the valid elements; ``std`` is unbiased, and 0 for fewer than two of them."""

    count: int
    mean: float
    std: float
    low: float
    high: float


def full_mask(mask: Tensor | None, like: Tensor) -> Tensor:
    """The mask in the shape of ``like``; None means that everything is valid."""
    if mask is None:
        return torch.ones(like.shape, dtype=torch.bool, device=like.device)
    if mask.dtype != torch.bool:
        raise RolloutMismatch(f"mask: dtype {mask.dtype}, allowed: torch.bool")
    return _expand("mask", mask, like)


def keep(values: Tensor, mask: Tensor | None) -> Tensor:
    """The values, with zeros behind the mask."""
    return values if mask is None else torch.where(full_mask(mask, values), values, torch.zeros_like(values))


def masked_mean(values: Tensor, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """sum(w m x) / sum(w m) over the full shape; 0 if nothing is valid. ``weight`` broadcasts as a mask does."""
    valid = full_mask(mask, values)
    kept = torch.where(valid, values, torch.zeros_like(values))
    if weight is None:
        return kept.sum() / valid.sum().clamp(min=1)
    weights = torch.where(valid, _expand("weight", weight, values), torch.zeros_like(values))
    total = weights.sum()
    return (kept * weights).sum() / torch.where(total > 0, total, torch.ones_like(total))


def moments(values: Tensor, mask: Tensor | None = None) -> Moments:
    """Mean, spread and range of the valid elements, in float64; zeros if there are none."""
    valid = values.detach()[full_mask(mask, values)].double()
    if valid.numel() == 0:
        return Moments(count=0, mean=0.0, std=0.0, low=0.0, high=0.0)
    std = float(valid.std()) if valid.numel() > 1 else 0.0
    return Moments(
        count=valid.numel(), mean=float(valid.mean()), std=std, low=float(valid.min()), high=float(valid.max())
    )


def normalize(values: Tensor, mask: Tensor | None = None, *, epsilon: float = 1e-5) -> Tensor:
    """(x - mean) / (std + epsilon) over the valid elements, zeros elsewhere.

    Fewer than two valid elements have no spread: they are returned as they are.
    """
    known = moments(values, mask)
    if known.count < 2:
        return keep(values, mask)
    return keep((values - known.mean) / (known.std + epsilon), mask)


def _expand(name: str, part: Tensor, like: Tensor) -> Tensor:
    missing = like.dim() - part.dim()
    padded = part.reshape(*part.shape, *[1] * missing) if missing >= 0 else part
    if missing < 0 or any(own not in (1, full) for own, full in zip(padded.shape, like.shape, strict=True)):
        raise RolloutMismatch(
            f"{name}: shape {tuple(part.shape)}, allowed: the leading dimensions of {tuple(like.shape)}"
        )
    return padded.expand(like.shape)
