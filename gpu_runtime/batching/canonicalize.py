"""Dataset batches become features."""

from typing import TYPE_CHECKING

from gpu_runtime.batching.feature import VLAFeature

if TYPE_CHECKING:  # the readers behind it (pyarrow, av) are not needed to run a backbone
    from gpu_runtime.data.samples import SampleBatch


def to_features(batch: "SampleBatch", query_tokens: int = 0) -> list[VLAFeature]:
    """One feature per row of the batch, views in the batch's order.

    Raises ValueError when a view's rows don't match the instructions.
    """
    samples = len(batch.instructions)
    for view, images_BHWC in enumerate(batch.images):
        if len(images_BHWC) != samples:
            raise ValueError(f"images[{view}]: {len(images_BHWC)} rows, but the batch has {samples} instructions")
    return [
        VLAFeature(
            images=tuple(images_BHWC[row] for images_BHWC in batch.images),
            instruction=batch.instructions[row],
            query_tokens=query_tokens,
        )
        for row in range(samples)
    ]
