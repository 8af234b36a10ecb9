"""Pixels to patches, held against transformers' own processor."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen2VLImageProcessorPil

from gpu_runtime.models.backbones.images import ImageProcessing

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [(32, 32), (64, 96), (224, 224)])
@pytest.mark.parametrize("statistics", [([0.5] * 3, [0.5] * 3), ([0.48, 0.46, 0.41], [0.27, 0.26, 0.28])])
def test_patches_equal_every_frame_of_transformers_processor(
    size: tuple[int, int], statistics: tuple[list[float], list[float]]
) -> None:
    mean, std = statistics
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    processor = Qwen2VLImageProcessorPil(patch_size=16, image_mean=mean, image_std=std, do_resize=False)
    expected = processor([image], return_tensors="pt")
    ours = ImageProcessing(mean=tuple(mean), std=tuple(std))
    grid = ours.grid(image)
    assert [1, grid.rows, grid.columns] == expected["image_grid_thw"][0].tolist()
    patches = ours.patchify([image], CPU)
    frames = expected["pixel_values"].unflatten(1, (3, ours.temporal, 16 * 16))
    for frame in range(ours.temporal):
        torch.testing.assert_close(patches, frames[:, :, frame].flatten(1), rtol=0, atol=1e-6)


def test_patches_of_mixed_sizes_keep_their_order() -> None:
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in [(32, 32), (64, 32), (64, 32), (32, 32)]]
    together = ImageProcessing().patchify(images, CPU)
    assert torch.equal(together, torch.cat([ImageProcessing().patchify([image], CPU) for image in images]))


def test_a_view_into_a_larger_array_is_read_as_it_looks() -> None:
    frames = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    flipped = frames[::-1, ::2]
    assert torch.equal(ImageProcessing().patchify([flipped], CPU), ImageProcessing().patchify([flipped.copy()], CPU))


@pytest.mark.parametrize("size", [(48, 64), (64, 48), (33, 32)])
def test_a_side_that_is_no_multiple_of_the_merged_patch_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"image size: {size[0]}x{size[1]} pixels, both must be multiples of 32"):
        ImageProcessing().grid(np.zeros((*size, 3), np.uint8))


def write_preprocessor(folder: Path, **values: object) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(values))


def test_a_checkpoints_own_pixel_statistics_are_used_and_recorded(tmp_path: Path) -> None:
    write_preprocessor(tmp_path, image_mean=[0.1, 0.2, 0.3], image_std=[1, 1, 1])
    processing = ImageProcessing.from_checkpoint(tmp_path, patch=16, merge=2, temporal=2)
    assert processing.mean == (0.1, 0.2, 0.3)
    assert "mean [0.1, 0.2, 0.3]" in processing.description
    assert processing.description != ImageProcessing().description


@pytest.mark.parametrize("values", [None, {"image_mean": [0.5] * 3}, {"image_mean": [0.5], "image_std": [0.5] * 3}])
def test_pixel_statistics_are_never_guessed(tmp_path: Path, values: dict[str, object] | None) -> None:
    if values is not None:
        write_preprocessor(tmp_path, **values)
    with pytest.raises(ValueError, match=r"preprocessor_config.json: image_(mean|std) is .*, needed are 3 numbers"):
        ImageProcessing.from_checkpoint(tmp_path, patch=16, merge=2, temporal=2)
