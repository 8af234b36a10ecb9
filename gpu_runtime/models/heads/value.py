"""The critic: an MLP on the mean prefix feature and the normalised state. It needs no action, hence no head.

So the value of an episode's final observation costs a prefix only. Samples come unpadded, each with its own tokens:
the mean is over real tokens whatever the neighbours' lengths.

Shapes: B samples, C executed steps, L feature tokens, D feature width, S state dims, I inputs.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gpu_runtime.models.errors import BatchMismatch, FeatureMismatch
from gpu_runtime.models.heads.base import Features, HeadShape, detached, initialize
from gpu_runtime.models.heads.features import Standardizer
from gpu_runtime.models.heads.inputs import required_state
from gpu_runtime.protocol.exploration import ValueSpec

OUTPUT_STD = 0.02
POOLED = "pooled"


class ValueHead(nn.Module):
    """One value per observation, whatever chunk is then executed; or one for each of its ``executed`` steps."""

    def __init__(self, spec: ValueSpec, shape: HeadShape, *, executed: int) -> None:
        super().__init__()
        self.shape, self.episode_progress, self.per_step = shape, spec.episode_progress, spec.per_step
        self.taps = tuple(sorted(shape.feature_widths))
        width = sum(shape.feature_widths.values())
        self.standardizer = Standardizer(width, per_token=True) if spec.standardize else None
        sizes = (width + shape.state_dim + int(spec.episode_progress), *spec.hidden)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, spec.hidden, strict=False))
        self.out = nn.Linear(spec.hidden[-1], executed if spec.per_step else 1, bias=False)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw every weight from ``generator``; values start near zero."""
        initialize(self, generator)
        with torch.no_grad():
            self.out.weight.copy_(OUTPUT_STD * torch.randn(self.out.weight.shape, generator=generator))

    @property
    def needs_fit(self) -> bool:
        """True until the spread of the tenant's own pooled features is known."""
        return self.standardizer is not None and self.standardizer.tokens == 0

    def fit(self, features: Sequence[Features]) -> None:
        """Mean and spread of the pooled features: most of a frozen base's feature never moves."""
        if self.standardizer is not None:
            self.standardizer.fit([{POOLED: row[None]} for row in self.pool(features)], POOLED)

    def fit_shape(self) -> dict[str, int]:
        """Sizes that only ``fit`` knows, so that ``allocate`` can rebuild the same tensors before loading."""
        return {} if self.standardizer is None else {"tokens": self.standardizer.tokens}

    def allocate(self, fit_shape: Mapping[str, int]) -> None:
        """Make room for fitted statistics of these sizes."""
        if self.standardizer is not None:
            self.standardizer.allocate(fit_shape["tokens"])

    def forward(
        self, features: Sequence[Features], state_BS: Tensor | None, progress_B: Tensor | None = None
    ) -> Tensor:
        """Values [B], or per step [B, C] of which the first is the observation's own.

        ``progress_B`` is the share of the step limit that has passed, in [0, 1], for a critic that is told it.
        Raises NotFitted, FeatureMismatch or BatchMismatch.
        """
        return self.of_pooled(self.pool(features), state_BS, progress_B)

    def of_pooled(self, pooled_BD: Tensor, state_BS: Tensor | None, progress_B: Tensor | None = None) -> Tensor:
        """The same of features that were pooled before."""
        x_BI = pooled_BD
        if self.standardizer is not None:
            x_BI = self.standardizer(x_BI[:, None])[:, 0]
        if self.shape.state_dim:
            x_BI = torch.cat([x_BI, required_state(state_BS, self.shape.state_dim)], dim=-1)
        if (progress_B is not None) != self.episode_progress:
            found, allowed = ("missing", "[0, 1]") if self.episode_progress else ("given", "none for this critic")
            raise BatchMismatch(f"progress: {found}, allowed: {allowed}")
        if progress_B is not None:
            x_BI = torch.cat([x_BI, progress_B[:, None].to(x_BI)], dim=-1)
        for layer in self.hidden:
            x_BI = torch.relu(layer(x_BI))
        return self.out(x_BI) if self.per_step else self.out(x_BI)[:, 0]

    def pool(self, features: Sequence[Features]) -> Tensor:
        """Mean over each sample's own tokens, taps side by side, [B, D], as plain data; it depends on no weight.

        Features that samples share are read once.
        """
        known: dict[tuple[object, ...], Tensor] = {}
        rows = []
        for sample in detached(features):
            place = tuple((sample[tap].data_ptr(), sample[tap].shape) for tap in self.taps if tap in sample)
            if place not in known:
                known[place] = torch.cat([self._mean(sample, tap) for tap in self.taps])
            rows.append(known[place])
        return torch.stack(rows)

    def _mean(self, sample: Features, tap: str) -> Tensor:
        width = self.shape.feature_widths[tap]
        if tap not in sample or sample[tap].ndim != 2 or sample[tap].shape[1] != width or not len(sample[tap]):
            found = list(sample[tap].shape) if tap in sample else "missing"
            raise FeatureMismatch(f"tap {tap!r}: {found}, allowed: [at least 1 token, {width}]")
        return sample[tap].float().mean(dim=0)
