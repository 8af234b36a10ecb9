"""Shape and names of one feature of info.json, in the many forms that occur in the wild."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.info import INFO_FILE, Feature

CHANNELS = (1, 3, 4)
IMAGE_SIDE_MAX = 8192
_AXES = {"height": "h", "h": "h", "width": "w", "w": "w", "channel": "c", "channels": "c", "c": "c"}


class ImageLayout(StrEnum):
    """Order of an image feature's dimensions in info.json. Decoded frames are always HWC."""

    HWC = "hwc"
    CHW = "chw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageShape:
    """Pixels of a camera as stored."""

    layout: ImageLayout
    height: int
    width: int
    channels: int


def _axes_by_name(feature: Feature) -> str | None:
    """``hwc`` or ``chw`` where ``names`` says so."""
    names = list(flat_names(feature.names))
    axes = "".join(_AXES.get(name.lower(), "?") for name in names)
    return axes if axes in tuple(ImageLayout) else None


def image_shape(feature: Feature) -> ImageShape:
    """Resolve HWC or CHW: by ``names``, else by which end has 1, 3 or 4 entries; ambiguous shapes are refused."""
    shape = feature.shape
    if len(shape) != 3:
        raise _image_fault("camera_shape", feature, "an image has 3 dimensions")
    by_size = {
        ImageLayout.HWC: shape[2] in CHANNELS,
        ImageLayout.CHW: shape[0] in CHANNELS,
    }
    named = _axes_by_name(feature)
    if named is not None:
        layout = ImageLayout(named)
        if not by_size[layout]:
            raise _image_fault(
                "camera_layout", feature, f"names say {layout}, but that axis is not 1, 3 or 4 channels"
            )
    else:
        possible = [layout for layout, fits in by_size.items() if fits]
        if len(possible) != 1:
            raise _image_fault("camera_layout_ambiguous", feature, "add names: height, width, channel in their order")
        layout = possible[0]
    height, width, channels = shape if layout is ImageLayout.HWC else (shape[1], shape[2], shape[0])
    if not (0 < height <= IMAGE_SIDE_MAX and 0 < width <= IMAGE_SIDE_MAX):
        raise _image_fault("camera_shape", feature, f"height and width must be 1 to {IMAGE_SIDE_MAX} pixels")
    return ImageShape(layout=layout, height=height, width=width, channels=channels)


def _image_fault(code: str, feature: Feature, reason: str) -> DatasetError:
    message = f"{feature.key}: shape {list(feature.shape)} with names {feature.names!r:.80}: {reason}"
    return DatasetError(code, message, file=INFO_FILE, feature=feature.key)


def flat_names(names: Any, depth: int = 0) -> Iterator[str]:
    """Dimension names of the forms in the wild: list, list in a list, ``{group: [names]}``, ``{name: index}``."""
    if isinstance(names, str):
        yield names
    elif isinstance(names, dict) and names and all(type(value) is int for value in names.values()):
        yield from sorted(names, key=lambda name: names[name])
    elif isinstance(names, list | dict) and depth < 4:
        for item in names.values() if isinstance(names, dict) else names:
            yield from flat_names(item, depth + 1)


def dimension_names(feature: Feature) -> tuple[str, ...]:
    """One name per dimension; numbered where info.json has none or not as many as there are dimensions."""
    dim = feature.shape[0] if feature.shape else 1
    names = tuple(flat_names(feature.names))
    return names if len(names) == dim else tuple(f"{feature.key}[{index}]" for index in range(dim))
