"""One piece of a job's work, and its payload as arrays."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpu_runtime.data.samples import FrameRef, SampleBatch
from gpu_runtime.scheduler.training_queue import Purpose

# B samples, P of them with images, H actions per sample, A action dimensions, S state dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one partition is for. ``name`` identifies the work itself: a redone step has the same name.

    ``step`` counts optimizer steps: of a training partition the step it makes, of an evaluation the steps before it.
    """

    purpose: Purpose
    step: int
    chunk: int = 0
    chunks: int = 1

    @property
    def name(self) -> str:
        return f"{self.purpose.value.lower()}/{self.step}" + (f"/{self.chunk}" if self.chunks > 1 else "")

    @property
    def is_last_chunk(self) -> bool:
        return self.chunk == self.chunks - 1


def image_bytes(samples: int, views: int, image_size: int) -> int:
    """Bytes of a batch's images, which are nearly all of its payload: known before a frame is decoded."""
    return samples * views * image_size * image_size * 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Where a batch comes from, so that its features can be found, and which of its samples have images with them."""

    refs: tuple[FrameRef, ...]
    pictured: tuple[int, ...]  # positions in the batch, in the order of the images' rows


def pack_batch(batch: SampleBatch, frames: Frames | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata) of one partition. Without ``frames`` every sample has its images."""
    arrays = {f"image.{view:02d}": image for view, image in enumerate(batch.images)}
    if frames is not None:
        arrays["refs"] = np.array([(ref.episode, ref.frame) for ref in frames.refs], dtype=np.int64)
        arrays["pictured"] = np.array(frames.pictured, dtype=np.int64)
    arrays |= {"actions": batch.actions_BHA, "mask": batch.mask_BH}
    if batch.state_BS is not None:
        arrays["state"] = batch.state_BS
    return arrays, {"instructions": json.dumps(batch.instructions)}


def unpack_batch(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> SampleBatch:
    """The batch that ``pack_batch`` took apart. Raises KeyError naming what is missing."""
    return SampleBatch(
        images=tuple(arrays[name] for name in sorted(arrays) if name.startswith("image.")),
        instructions=tuple(json.loads(metadata["instructions"])),
        state_BS=arrays.get("state"),
        actions_BHA=arrays["actions"],
        mask_BH=arrays["mask"],
    )


def unpack_frames(arrays: Mapping[str, np.ndarray], batch: SampleBatch) -> Frames | None:
    """What was packed with the batch; None when nothing was. Raises ValueError naming what does not fit the batch."""
    if "refs" not in arrays:
        return None
    refs, pictured = arrays["refs"], arrays["pictured"]
    if refs.shape != (len(batch), 2):
        raise ValueError(f"refs: shape {list(refs.shape)}, allowed: [{len(batch)}, 2]")
    if pictured.ndim != 1 or ((pictured < 0) | (pictured >= len(batch))).any():
        raise ValueError(f"pictured: {pictured.tolist()}, allowed: positions of a batch of {len(batch)}")
    for view, images in enumerate(batch.images):
        if len(images) != len(pictured):
            raise ValueError(f"images[{view}]: {len(images)} rows, allowed: {len(pictured)}, one for each of pictured")
    return Frames(
        refs=tuple(FrameRef(episode, frame) for episode, frame in refs.tolist()), pictured=tuple(pictured.tolist())
    )
