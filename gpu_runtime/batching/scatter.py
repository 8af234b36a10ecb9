"""Packed outputs go back to the samples that asked for them."""

from collections.abc import Sequence

import torch


def scatter(rows_ND: torch.Tensor, counts: Sequence[int], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
    """Consecutive ``counts`` rows for each sample, in memory of their own; None for a sample that didn't ask.

    Copies, because a slice handed to one tenant must neither keep the whole group's rows alive nor let an in-place
    operation reach another tenant's.
    """
    slices = rows_ND.split(list(counts))
    return [rows.clone() if asked else None for rows, asked in zip(slices, wanted, strict=False)]
