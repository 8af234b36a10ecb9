"""Looking into a ready version without downloading it: episodes, curves, distributions, frames, videos.

An answer is read once and kept (`preview_cache`): a sealed version never changes.
"""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings

from tenants.datasets import preview_cache
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.preview_child import read_version, refused
from tenants.errors import ApplicationError

EPISODES_PER_PAGE = 100
VIDEO_WALL_LIMIT_S = 90.0
_VIDEO_CPU_LIMIT_S = "60"
_POINTS = (2000, 1000, 500, 250, 100, 50)  # resolutions that are kept; others are rounded down to one of them


def episodes(version: DatasetVersion, page: int, task: str | None = None) -> dict[str, Any]:
    """``episodes``: index, length and instruction of `EPISODES_PER_PAGE`, of ``total``; ``page`` counts from 1.

    Only those of one instruction, if ``task`` is given.
    """
    first = str((page - 1) * EPISODES_PER_PAGE)
    options = ["episodes", "--first", first, "--count", str(EPISODES_PER_PAGE)]
    of_task = ""
    if task is not None:
        options.append(f"--task={task}")
        of_task = f"{hashlib.sha256(task.encode()).hexdigest()[:16]}-"
    found: dict[str, Any] = json.loads(_answer(version, f"strip-{of_task}{page}.json", options))
    return found


def episode(version: DatasetVersion, index: int, max_points: int) -> dict[str, Any]:
    """Curves of one episode's state and action in at most ``max_points`` buckets. Raises ApplicationError."""
    points = str(next((points for points in _POINTS if points <= max_points), _POINTS[-1]))
    options = ["episode", "--points", points, "--", str(index)]
    series: dict[str, Any] = json.loads(_answer(version, f"series-{index}-{points}.json", options))
    return series


def distribution(version: DatasetVersion) -> dict[str, Any]:
    """Histograms per dimension of state and action, of the episodes' lengths, and episodes per instruction."""
    spread: dict[str, Any] = json.loads(_answer(version, "distribution.json", ["distribution"]))
    return spread


def frame(version: DatasetVersion, index: int, camera: str, number: int) -> bytes:
    """One frame, upright, as JPEG. Raises ApplicationError."""
    place = _camera_place(version, camera)
    options = ["frame", "--", str(index), camera, str(number)]
    return _answer(version, f"frame-{index}-{place}-{number}.jpg", options)


def video(version: DatasetVersion, index: int, camera: str) -> BinaryIO:
    """The MP4 of one episode as a camera saw it, upright, open for reading. Raises ApplicationError.

    Whoever comes while it is being made waits for it.
    """
    require_ready(version)
    make = partial(_write_video, version, index, camera)
    return preview_cache.open_file(version.pk, f"video-{index}-{_camera_place(version, camera)}.mp4", make)


def require_ready(version: DatasetVersion) -> None:
    """Only what is sealed is shown: it was read whole and found good. Raises ApplicationError 409."""
    if version.state != VersionState.READY:
        detail = f"This version is {version.state}; only a ready one has a preview."
        raise ApplicationError(code="not_ready", status=409, detail=detail)


def _camera_place(version: DatasetVersion, camera: str) -> int:
    cameras = (version.summary or {}).get("schema", {}).get("cameras", [])
    place = next((place for place, view in enumerate(cameras) if view["key"] == camera), None)
    if place is None:
        known = ", ".join(view["key"] for view in cameras) or "none"
        raise refused("camera", "camera_missing", f"There is no camera {camera!r}; there are: {known}.", 404)
    return place


def _answer(version: DatasetVersion, name: str, options: list[str]) -> bytes:
    require_ready(version)
    kept = preview_cache.read(version.pk, name)
    if kept is not None:
        return kept
    content = read_version(version, options)
    preview_cache.write(version.pk, name, content)
    return content


def _write_video(version: DatasetVersion, index: int, camera: str, to: Path) -> None:
    """A video may take an eighth of the place that all previews have."""
    most_bytes = str(settings.JOYNEXUS_PREVIEW_MAX_BYTES // 8)
    limits = ["--cpu-s", _VIDEO_CPU_LIMIT_S]
    options = [*limits, "video", "--to", str(to), "--max-bytes", most_bytes, "--", str(index), camera]
    read_version(version, options, wall_limit_s=VIDEO_WALL_LIMIT_S)
