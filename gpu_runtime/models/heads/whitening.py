"""Principal components of a tenant's own feature grids, scaled to unit variance.

Shapes: N fitted frames, L tokens, D feature width, F = L*D flattened grid, P components.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gpu_runtime.models.errors import FeatureMismatch, NotFitted
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.heads.features import STILL_VARIANCE, require_grid, stack_grid

RELATIVE_VARIANCE_FLOOR = 1e-7  # of the largest component; below it a component is rounding noise and is left out


class Whitening(nn.Module):
    """Project a token grid on its leading principal components; the grid is kept, never pooled.

    Features that do not vary, as those of words alone, have no component: the output is exactly 0.
    """

    mean_F: Tensor
    projection_FP: Tensor

    def __init__(self, width: int, components: int) -> None:
        super().__init__()
        self.width, self.components = width, components
        self.allocate(0)

    @property
    def tokens(self) -> int:
        """Tokens of the fitted grid; 0 before ``fit``."""
        return self.mean_F.shape[0] // self.width

    def allocate(self, tokens: int) -> None:
        """Make room for a grid of ``tokens`` tokens."""
        like = next((b for b in self.buffers()), torch.empty(0))
        size = tokens * self.width
        self.register_buffer("mean_F", torch.zeros(size, device=like.device))
        self.register_buffer("projection_FP", torch.zeros(size, self.components, device=like.device))

    def fit(self, features: Sequence[Features], tap: str) -> None:
        """Find the components of these frames. Fewer frames than components leave the last ones zero.

        Works on the N x N Gram matrix: frames are few, grid entries many. Raises FeatureMismatch for a ragged grid
        or fewer than two frames.
        """
        grid_NLD = stack_grid(features, tap, self.width)
        if grid_NLD.shape[0] < 2:
            raise FeatureMismatch(f"{grid_NLD.shape[0]} frames to fit on, allowed: at least 2")
        x_NF = grid_NLD.flatten(1).double()
        mean_F = x_NF.mean(dim=0)
        power = x_NF.square().sum(dim=1).mean()
        projection_FP = _principal(x_NF - mean_F, self.components, floor=float(STILL_VARIANCE * power))
        self.allocate(grid_NLD.shape[1])
        self.mean_F.copy_(mean_F)
        self.projection_FP[:, : projection_FP.shape[1]].copy_(projection_FP)

    def forward(self, features: Sequence[Features], tap: str) -> Tensor:
        """Whitened components, [B, P]. Raises NotFitted or FeatureMismatch."""
        if self.tokens == 0:
            raise NotFitted("principal components are missing; call fit with the tenant's own frames")
        if not bool(self.projection_FP[:, 0].any()):  # the largest component
            require_grid(features, tap, self.width, self.tokens)
            return self.projection_FP.new_zeros(len(features), self.components)
        x_BF = stack_grid(features, tap, self.width, self.tokens).flatten(1)
        return (x_BF - self.mean_F) @ self.projection_FP


def _principal(centred_NF: Tensor, components: int, *, floor: float) -> Tensor:
    """Columns v_p / sqrt(variance_p) of the leading components, largest first; none has a variance up to ``floor``."""
    frames = centred_NF.shape[0]
    variance_N, left_NN = torch.linalg.eigh(centred_NF @ centred_NF.T / (frames - 1))
    variance_N, left_NN = variance_N.flip(0), left_NN.flip(1)
    kept = int((variance_N > max(float(variance_N[0]) * RELATIVE_VARIANCE_FLOOR, floor)).sum())
    kept = min(components, frames - 1, kept)
    # v = X^T u / sqrt((N-1) variance), then divided by sqrt(variance) to whiten
    return centred_NF.T @ left_NN[:, :kept] / variance_N[:kept] / (frames - 1) ** 0.5
