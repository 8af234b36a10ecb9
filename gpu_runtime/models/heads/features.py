"""Backbone features of a batch as one tensor, and their per-tenant standardisation.

Shapes: B samples, L feature tokens (longest sample), D feature width, T tokens the statistics are kept for.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gpu_runtime.models.errors import FeatureMismatch, NotFitted
from gpu_runtime.models.heads.base import Features

STD_FLOOR = 0.1  # of the root mean square spread: a feature that hardly moves is not blown up to unit size
STILL_VARIANCE = 1e-9  # of the power: features below it do not vary (words alone), what is left of them is rounding


def stack(features: Sequence[Features], tap: str, width: int) -> tuple[Tensor, Tensor | None]:
    """Stack ragged samples to [B, L, D] float32, zero behind the end, with the mask [B, L] (None: all equally long).

    Raises FeatureMismatch when the tap is missing or its width is not ``width``.
    """
    rows = [_tap(sample, tap, width) for sample in features]
    lengths = [row.shape[0] for row in rows]
    if len(set(lengths)) == 1:
        return torch.stack(rows).float(), None
    padded_BLD = nn.utils.rnn.pad_sequence(rows, batch_first=True).float()
    places_L = torch.arange(max(lengths), device=padded_BLD.device)
    return padded_BLD, places_L < torch.tensor(lengths, device=padded_BLD.device)[:, None]


def stack_grid(features: Sequence[Features], tap: str, width: int, tokens: int | None = None) -> Tensor:
    """Stack samples that must all have the same token grid (``tokens`` of them when given), [B, L, D]."""
    require_grid(features, tap, width, tokens)
    return stack(features, tap, width)[0]


def require_grid(features: Sequence[Features], tap: str, width: int, tokens: int | None = None) -> None:
    """Raise FeatureMismatch unless all samples have the same token grid, of ``tokens`` tokens when given."""
    found = sorted({_tap(sample, tap, width).shape[0] for sample in features})
    if len(found) != 1 or tokens not in (None, found[0]):
        raise FeatureMismatch(f"tap {tap!r}: {found} tokens, allowed: {tokens or 'one fixed token grid per tenant'}")


def _tap(sample: Features, tap: str, width: int) -> Tensor:
    if tap not in sample:
        raise FeatureMismatch(f"features lack tap {tap!r}; given: {sorted(sample)}")
    if sample[tap].ndim != 2 or sample[tap].shape[1] != width:
        raise FeatureMismatch(f"tap {tap!r}: shape {tuple(sample[tap].shape)}, allowed: [tokens, {width}]")
    return sample[tap]


class Standardizer(nn.Module):
    """Zero mean and unit spread of every feature over the tenant's frames.

    A frozen base's features are mostly a constant common mode (87-96 % of the power on a random base); without this
    a gradient-trained head sees hardly anything move. Where nothing moves at all the output is exactly 0.
    ``per_token`` keeps one mean per place of a fixed grid; otherwise one per channel, which also fits prompts of
    different lengths.
    """

    mean_TD: Tensor
    scale_TD: Tensor

    def __init__(self, width: int, *, per_token: bool) -> None:
        super().__init__()
        self.width, self.per_token = width, per_token
        self.allocate(0)

    @property
    def tokens(self) -> int:
        """Token places the statistics are kept for; 0 before ``fit``."""
        return self.mean_TD.shape[0]

    def allocate(self, tokens: int) -> None:
        """Make room for statistics of ``tokens`` places."""
        like = next((b for b in self.buffers()), torch.empty(0))
        self.register_buffer("mean_TD", torch.zeros(tokens, self.width, device=like.device))
        self.register_buffer("scale_TD", torch.ones(tokens, self.width, device=like.device))

    def fit(self, features: Sequence[Features], tap: str) -> None:
        """Statistics of these frames' features, in float64. Raises FeatureMismatch for a ragged grid."""
        if self.per_token:
            x = stack_grid(features, tap, self.width).double()
        else:
            x = torch.cat([_tap(sample, tap, self.width) for sample in features]).double()[:, None]
        mean_TD, std_TD = x.mean(dim=0), x.std(dim=0, correction=0)
        floor = STD_FLOOR * std_TD.square().mean().sqrt()
        self.allocate(mean_TD.shape[0])
        self.mean_TD.copy_(mean_TD)
        self.scale_TD.copy_(1 / std_TD.clamp_min(floor).clamp_min(1e-6))
        if std_TD.square().mean() <= STILL_VARIANCE * x.square().mean():
            self.scale_TD.zero_()

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Standardised features. Raises NotFitted, or FeatureMismatch when the grid is another one."""
        if self.tokens == 0:
            raise NotFitted("feature statistics are missing; call fit with the tenant's own frames")
        if self.per_token and x_BLD.shape[1] != self.tokens:
            raise FeatureMismatch(f"features have {x_BLD.shape[1]} tokens, allowed: {self.tokens} (as fitted)")
        return (x_BLD - self.mean_TD) * self.scale_TD
