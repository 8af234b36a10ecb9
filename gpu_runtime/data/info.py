"""meta/info.json: what a LeRobot dataset claims about itself."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import read_json_object

INFO_FILE = "meta/info.json"
FEATURES_MAX = 1000
DIMENSIONS_MAX = 4096  # of one state or action vector
COUNT_MAX = 10**9  # episodes or frames a dataset may claim
IMAGE_DTYPES = ("video", "image")
_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,3})(\.\d{1,3})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One column: dtype, per-frame shape, and the names of its dimensions as written (list, dict, nested or None)."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    names: Any
    is_depth_map: bool = False

    @property
    def is_image(self) -> bool:
        return self.dtype in IMAGE_DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """The claims of info.json that reading relies on; ``total_*`` are compared with the files by validation."""

    codebase_version: str
    major: int
    robot_type: str
    fps: float
    total_episodes: int
    total_frames: int
    total_tasks: int | None
    chunks_size: int
    data_path: str
    video_path: str | None
    features: Mapping[str, Feature]


def _fault(code: str, message: str, feature: str | None = None) -> DatasetError:
    return DatasetError(code, message, file=INFO_FILE, feature=feature)


def _count(raw: Mapping[str, Any], name: str, *, low: int = 0) -> int:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= COUNT_MAX:
        raise _fault("info_invalid", f"{name} is {value!r:.80}; it must be an integer from {low} to {COUNT_MAX}")
    return value


def _text(raw: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = raw.get(name) or default
    if not isinstance(value, str) or len(value) > 1000:
        raise _fault("info_invalid", f"{name} is {value!r:.80}; it must be a text of at most 1000 characters")
    return value


def _fps(raw: Mapping[str, Any]) -> float:
    value = raw.get("fps")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 < value <= 1e4
    ):
        raise _fault("fps_invalid", f"fps is {value!r:.80}; it must be a number above 0 and at most 10000")
    return float(value)


def _version(raw: Mapping[str, Any]) -> tuple[str, int]:
    """Version text and its major; 2.1 and every 3.x are read, other versions name the conversion."""
    text = str(raw.get("codebase_version"))[:80]
    match = _VERSION.fullmatch(text)
    if match is not None:
        major, minor = int(match[1]), int(match[2])
        if (major, minor) == (2, 1) or major == 3:
            return text, major
    hint = (
        "convert older datasets with LeRobot's v20 -> v21 and v21 -> v30 conversion scripts"
        if match is None or int(match[1]) < 3
        else "export it as v3.0"
    )
    raise _fault("codebase_version", f"codebase_version {text!r} is not supported; allowed: v2.1, v3.x; {hint}")


def _feature(key: str, raw: Any) -> Feature:
    if not isinstance(raw, dict):
        raise _fault("feature_invalid", f"feature {key!r} must be an object with dtype and shape", key)
    dtype, shape = raw.get("dtype"), raw.get("shape")
    if not isinstance(dtype, str) or len(dtype) > 40:
        raise _fault("feature_invalid", f"feature {key!r}: dtype is {dtype!r:.80}; it must be a text", key)
    if not isinstance(shape, list) or len(shape) > 6 or not all(type(size) is int and size >= 0 for size in shape):
        raise _fault("feature_invalid", f"feature {key!r}: shape is {shape!r:.80}; it must be a list of integers", key)
    details = raw.get("info") or raw.get("video_info") or {}
    depth = isinstance(details, dict) and details.get("video.is_depth_map") is True
    return Feature(key=key, dtype=dtype, shape=tuple(shape), names=raw.get("names"), is_depth_map=depth)


def _features(raw: Mapping[str, Any]) -> dict[str, Feature]:
    features = raw.get("features")
    if not isinstance(features, dict) or not features:
        raise _fault("info_invalid", "features must be an object with one entry per column")
    if len(features) > FEATURES_MAX:
        raise _fault("too_many_columns", f"{len(features)} features; at most {FEATURES_MAX} are allowed")
    too_long = [key for key in features if not 0 < len(key) <= 200 or "/" in key or "\\" in key or key.startswith(".")]
    if too_long:
        raise _fault("feature_invalid", f"feature name {too_long[0]!r:.80} must have 1 to 200 characters and no slash")
    return {key: _feature(key, value) for key, value in features.items()}


def read_info(root: Path) -> DatasetInfo:
    """Parse and check meta/info.json; the first wrong field is refused by name."""
    raw = read_json_object(root, INFO_FILE)
    version, major = _version(raw)
    features = _features(raw)
    has_video = any(feature.dtype == "video" for feature in features.values())
    return DatasetInfo(
        codebase_version=version,
        major=major,
        robot_type=_text(raw, "robot_type", "unknown"),
        fps=_fps(raw),
        total_episodes=_count(raw, "total_episodes"),
        total_frames=_count(raw, "total_frames"),
        total_tasks=None if raw.get("total_tasks") is None else _count(raw, "total_tasks"),
        chunks_size=_count(raw, "chunks_size", low=1),
        data_path=_text(raw, "data_path"),
        video_path=_text(raw, "video_path") if has_video else None,
        features=features,
    )
