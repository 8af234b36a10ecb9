"""Action chunks that run past the end of an episode: the one treatment of the chunk mask.

Shapes: B samples, H horizon, A action dims.
"""

import torch
from torch import Tensor

from gpu_runtime.models.errors import BatchMismatch


def full_mask(actions_BHA: Tensor, mask_BH: Tensor | None) -> Tensor:
    """The mask, or one that is all valid. Raises BatchMismatch when a sample has no valid step at its start."""
    if mask_BH is None:
        return torch.ones(actions_BHA.shape[:2], dtype=torch.bool, device=actions_BHA.device)
    if mask_BH.shape != actions_BHA.shape[:2]:
        raise BatchMismatch(f"mask: shape {tuple(mask_BH.shape)}, allowed: {tuple(actions_BHA.shape[:2])}")
    mask_BH = mask_BH.bool()
    if not bool(mask_BH[:, 0].all()):
        raise BatchMismatch("mask: a sample's first step is not valid; every chunk starts inside its episode")
    return mask_BH


def hold_last_valid(actions_BHA: Tensor, mask_BH: Tensor) -> Tensor:
    """Replace steps behind the mask by the last valid action, whatever (even NaN) is stored there."""
    steps_BH = torch.arange(mask_BH.shape[1], device=mask_BH.device).expand_as(mask_BH)
    last_BH = torch.where(mask_BH, steps_BH, 0).cummax(dim=1).values
    return actions_BHA.gather(1, last_BH[..., None].expand_as(actions_BHA))


def masked_mean(error_BHA: Tensor, mask_BH: Tensor) -> Tensor:
    """Mean over valid steps; what lies behind the mask reaches neither value nor gradient."""
    valid = torch.where(mask_BH[..., None], error_BHA, 0.0)
    return valid.sum() / (mask_BH.sum() * error_BHA.shape[-1])
