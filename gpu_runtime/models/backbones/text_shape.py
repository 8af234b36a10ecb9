"""What a text forward's work depends on beside its numbers: how long the samples are and where each stops."""

from dataclasses import dataclass

from gpu_runtime.batching.collate import PackedBatch
from gpu_runtime.batching.taps import TapPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShape:
    """Of the samples that go through text layers, in their order, and the layers after which rows are wanted."""

    lengths: tuple[int, ...]
    depths: tuple[int, ...]  # text layers of each sample, never increasing
    patch_counts: tuple[int, ...]
    image_token_counts: tuple[int, ...]
    depth: int
    layers: tuple[int, ...]

    @classmethod
    def of(cls, batch: PackedBatch, plan: TapPlan) -> "TextShape":
        count = batch.text_samples
        return cls(
            lengths=tuple(batch.tokens.lengths),
            depths=batch.depths,
            patch_counts=batch.patch_counts[:count],
            image_token_counts=batch.image_token_counts[:count],
            depth=plan.depth,
            layers=tuple(sorted(plan.layers)),
        )

    def running(self, layer: int) -> int:
        """Samples, from the first, that go through this layer."""
        return sum(depth > layer for depth in self.depths)
