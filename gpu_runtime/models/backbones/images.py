"""Pixels to patches, without torchvision: rescale, normalise, cut in the merger's block order.

Shapes: B equal views, H height, W width, P patches of all of them, C channels, S pixels of a patch, V = C x S.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from gpu_runtime.batching.layout import ImageGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageProcessing:
    """How a base wants its pixels. A patch spans ``temporal`` frames; a still view fills them all with the same."""

    patch: int = 16
    merge: int = 2
    temporal: int = 2
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    @classmethod
    def from_checkpoint(cls, folder: Path, *, patch: int, merge: int, temporal: int) -> "ImageProcessing":
        """Pixel statistics of ``preprocessor_config.json``; the patch is the vision tower's.

        Raises ValueError when the file is missing or silent: guessed statistics would shift every feature.
        """
        path = folder / "preprocessor_config.json"
        values = json.loads(path.read_text()) if path.is_file() else {}
        statistics = {}
        for ours, theirs in (("mean", "image_mean"), ("std", "image_std")):
            if len(values.get(theirs, ())) != 3:
                raise ValueError(f"{path.name}: {theirs} is {values.get(theirs)!r}, needed are 3 numbers")
            statistics[ours] = tuple(values[theirs])
        return cls(patch=patch, merge=merge, temporal=temporal, **statistics)

    @property
    def description(self) -> str:
        """Goes into the prefix signature. Views are never resized here: the policy's size is the size."""
        return (
            f"x/255, mean {list(self.mean)}, std {list(self.std)}, patch {self.patch}, merge {self.merge},"
            f" temporal {self.temporal}, no resize"
        )

    def grid(self, image: np.ndarray) -> ImageGrid:
        """Patches of one view. Raises ValueError when a side isn't a multiple of patch x merge pixels."""
        height, width = image.shape[:2]
        side = self.patch * self.merge
        if height % side or width % side:
            raise ValueError(f"image size: {height}x{width} pixels, both must be multiples of {side}")
        return ImageGrid(height // self.patch, width // self.patch, self.merge)

    def patchify(self, images: Sequence[np.ndarray], device: torch.device) -> torch.Tensor:
        """[P, V] float32 patches of all views, in order: ONE frame of each, since a still view's frames are equal.

        Bytes are reordered and cross to the device, not floats.
        """
        runs = [self._patchify_equal(list(run)) for _, run in groupby(images, key=lambda image: image.shape)]
        pixels_PCS = torch.from_numpy(runs[0] if len(runs) == 1 else np.concatenate(runs)).to(device).float()
        mean_C1, std_C1 = (torch.tensor(values, device=device)[:, None] for values in (self.mean, self.std))
        return pixels_PCS.mul_(1 / 255).sub_(mean_C1).div_(std_C1).flatten(1)

    def _patchify_equal(self, images: list[np.ndarray]) -> np.ndarray:
        """[P, C, S] bytes of views of one size."""
        pixels_BHWC = np.stack(images)
        count, height, width, channels = pixels_BHWC.shape
        side, merge = self.patch, self.merge
        blocks = pixels_BHWC.reshape(
            count, height // (side * merge), merge, side, width // (side * merge), merge, side, channels
        )
        # view, block row, block column, row in block, column in block, channel, pixel row, pixel column
        ordered = blocks.transpose(0, 1, 4, 2, 5, 7, 3, 6)
        return ordered.reshape(-1, channels, side * side)
