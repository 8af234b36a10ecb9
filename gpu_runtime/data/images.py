"""One way from stored pixels to what a policy sees: decode, turn upright, resize. Images are RGB uint8 [H, W, 3]."""

import io
from typing import Any

import numpy as np
from PIL import Image

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.video import PIXELS_MAX

ENCODED_BYTES_MAX = 64 * 2**20


def decode_image(cell: Any, *, file: str, feature: str) -> np.ndarray:
    """A parquet image cell (``{bytes, path}`` or bytes) of PNG or JPEG as RGB uint8 [H, W, 3]."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(content, bytes) or not 0 < len(content) <= ENCODED_BYTES_MAX:
        raise DatasetError("image_missing", f"{feature} holds no image bytes", file=file, feature=feature)
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            if image.width * image.height > PIXELS_MAX:
                raise DatasetError(
                    "image_unreadable", f"{feature}: {image.width}x{image.height} pixels", file=file, feature=feature
                )
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError("image_unreadable", f"{feature}: {error}", file=file, feature=feature) from error


def fit_image(image_HWC: np.ndarray, *, size: int, rotation_deg: int = 0) -> np.ndarray:
    """Turn upright (counter-clockwise degrees), then resize to ``size`` x ``size`` with antialiased bilinear filter.

    The aspect ratio is not kept (StarVLA's convention), so no pixel of the view is lost. Training, rollout and
    serving must all use this function.
    """
    upright = np.rot90(image_HWC, k=rotation_deg // 90) if rotation_deg else image_HWC
    if upright.shape[:2] == (size, size):
        return np.ascontiguousarray(upright)
    resized = Image.fromarray(np.ascontiguousarray(upright)).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized)
