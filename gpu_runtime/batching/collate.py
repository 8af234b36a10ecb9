"""Samples of any lengths and views lie end to end in one packed batch: no padding anywhere.

Shapes: L tokens of one sample, N packed tokens, M image tokens, Q query tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from gpu_runtime.batching.layout import ImageGrid, TokenLayout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedSample:
    """A tokenised sample, ready to be packed."""

    ids_L: np.ndarray
    layout: TokenLayout
    query_index_Q: np.ndarray  # places of the action-query tokens
    images: tuple[np.ndarray, ...]
    scope: str = ""  # within it later calls may know its pictures

    @property
    def length(self) -> int:
        return self.layout.length


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """``count`` neighbouring segments of one ``length``: a dense block that attention can view as a batch."""

    start: int
    count: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Lengths of the sequences in a packed axis; tokens attend within their own only."""

    lengths: tuple[int, ...]
    runs: tuple[SegmentRun, ...]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Segments":
        runs, start = [], 0
        for length, members in groupby(lengths):
            count = len(list(members))
            runs.append(SegmentRun(start=start, count=count, length=length))
            start += count * length
        return cls(lengths=tuple(lengths), runs=tuple(runs))

    @property
    def total(self) -> int:
        return sum(self.lengths)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Start of every segment, and the end of the last."""
        return (0, *np.cumsum(self.lengths).tolist())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedBatch:
    """Flat tokens of the first ``text_samples`` samples, flat views of all.

    Samples that need no text layer come last, so the image tokens of the others are the first rows of the merger.
    Those that need more text layers come before those that need fewer: finished ones are cut off the end.
    """

    images: tuple[np.ndarray, ...]
    scopes: tuple[str, ...]  # of each view
    grids: tuple[ImageGrid, ...]
    patch_counts: tuple[int, ...]  # patches per sample
    image_token_counts: tuple[int, ...]  # image tokens per sample
    depths: tuple[int, ...]  # text layers of each sample that needs any, never increasing
    tokens: Segments
    ids_N: np.ndarray
    positions_3N: np.ndarray
    image_index_M: np.ndarray  # places of the image tokens among the N
    query_index_Q: np.ndarray  # places of the query tokens among the N
    query_counts: tuple[int, ...]

    @property
    def text_samples(self) -> int:
        return len(self.depths)

    def running(self, layer: int) -> int:
        """Samples, from the first, that go through this text layer."""
        return sum(depth > layer for depth in self.depths)


def collate(samples: Sequence[PreparedSample], *, depths: Sequence[int]) -> PackedBatch:
    """Pack the samples in this order; each goes through as many text layers as ``depths`` says.

    Raises ValueError when a sample needs more layers than the one before it.
    """
    if any(later > earlier for earlier, later in pairwise(depths)):
        raise ValueError(f"depths: {list(depths)}, a sample may need no more layers than the one before it")
    texts = [sample for sample, depth in zip(samples, depths, strict=True) if depth]
    tokens = Segments.of([sample.length for sample in texts])
    return PackedBatch(
        images=tuple(image for sample in samples for image in sample.images),
        scopes=tuple(sample.scope for sample in samples for _ in sample.images),
        grids=tuple(grid for sample in samples for grid in sample.layout.grids),
        patch_counts=tuple(sum(grid.patches for grid in sample.layout.grids) for sample in samples),
        image_token_counts=tuple(sum(grid.tokens for grid in sample.layout.grids) for sample in samples),
        depths=tuple(depth for depth in depths if depth),
        tokens=tokens,
        ids_N=_concatenate([sample.ids_L for sample in texts]),
        positions_3N=_concatenate([sample.layout.positions_3L for sample in texts]),
        image_index_M=_concatenate(_shifted([sample.layout.image_index_M for sample in texts], tokens)),
        query_index_Q=_concatenate(_shifted([sample.query_index_Q for sample in texts], tokens)),
        query_counts=tuple(len(sample.query_index_Q) for sample in texts),
    )


def _shifted(places: Sequence[np.ndarray], tokens: Segments) -> list[np.ndarray]:
    return [place + offset for place, offset in zip(places, tokens.offsets, strict=False)]


def _concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts, axis=-1) if parts else np.zeros(0, np.int64)
