"""Looking into a dataset: its episodes, curves of one, a single frame. Everything is read for one page at a time.

Shapes: L frames of one episode, D dimensions, B buckets of a curve.
"""

import io
from typing import Any

import numpy as np
from PIL import Image

from gpu_runtime.data.episodes import Catalogue
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.outcomes import read_outcomes
from gpu_runtime.protocol.schema import VectorFeature

JPEG_QUALITY = 85
VALUES_MAX = 400_000  # numbers in one answer: a dataset of many dimensions gets fewer buckets


def episodes_page(dataset: LeRobotDataset, *, first: int, count: int, task: str | None = None) -> dict[str, Any]:
    """``episodes``: index, length in frames and instruction of ``count`` from position ``first`` on, of ``total``.

    Only those of one instruction, if ``task`` is given. ``success_once`` and ``seed`` are None where the recording
    does not say.
    """
    rows = zip(dataset.episodes, read_outcomes(dataset.root, len(dataset.episodes)), strict=True)
    found = [row for row in rows if task is None or row[0].task == task]
    shown = [
        {
            "index": episode.index,
            "length": episode.length,
            "task": episode.task,
            "success_once": outcome.success_once,
            "seed": outcome.seed,
        }
        for episode, outcome in found[first : first + count]
    ]
    return {"total": len(found), "episodes": shown}


def episode_series(dataset: LeRobotDataset, index: int, *, points_max: int) -> dict[str, Any]:
    """State and action of one episode: of each dimension the least and greatest value in a bucket of frames.

    There are at most ``points_max`` buckets; ``frames`` holds each one's first frame. Where a bucket has no finite
    number, its values are None. ``fps`` is the recording's. Raises DatasetError.
    """
    part, position = _part_with(dataset, index)
    rows, schema = part.rows(position), part.schema
    states_NS = part.states_NS()
    dims = schema.action.dim + (schema.state.dim if schema.state else 0)
    length = part.lengths[position]
    starts = _bucket_starts(length, max(1, min(points_max, VALUES_MAX // (2 * dims))))
    state = None
    if schema.state is not None and states_NS is not None:
        state = _curves(schema.state, states_NS[rows], starts)
    return {
        "index": index,
        "length": length,
        "task": part.episodes[position].task,
        "fps": part.info.fps,
        "frames": starts.tolist(),
        "state": state,
        "action": _curves(schema.action, part.actions_NA()[rows], starts),
    }


def frame_jpeg(dataset: LeRobotDataset, index: int, *, camera: str, frame: int) -> bytes:
    """One frame as policies see it, turned upright, as a JPEG. Raises DatasetError."""
    part, position = _part_with(dataset, index)
    view = next((view for view in part.schema.cameras if view.key == camera), None)
    if view is None:
        known = ", ".join(view.key for view in part.schema.cameras) or "none"
        raise DatasetError("camera_missing", f"no camera {camera!r}; there are: {known}", feature=camera)
    if not 0 <= frame < part.lengths[position]:
        message = f"frame {frame} of episode {index}, which has {part.lengths[position]}"
        raise DatasetError("frame_missing", message, episode=index)
    (image_HWC,) = part.frames(position, [frame], camera)
    upright = np.rot90(image_HWC, k=view.rotation_deg // 90)
    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(upright)).save(content, "JPEG", quality=JPEG_QUALITY)
    return content.getvalue()


def _part_with(dataset: LeRobotDataset, index: int) -> tuple[LeRobotDataset, int]:
    """(the episodes in the same data file as episode ``index``, its position): only their vectors are read."""
    position = dataset.positions.get(index)
    if position is None:
        raise DatasetError("episode_missing", f"no episode {index}; there are {len(dataset.episodes)}", episode=index)
    file = dataset.episodes[position].data_file
    episodes = tuple(episode for episode in dataset.episodes if episode.data_file == file)
    part = LeRobotDataset(
        dataset.root, dataset.info, Catalogue(episodes=episodes, tasks=dataset.tasks), dataset.schema
    )
    return part, part.positions[index]


def _bucket_starts(length: int, buckets_max: int) -> np.ndarray:
    """First frame of each bucket [B]; buckets are as equal as whole frames allow, none is empty."""
    return np.unique(np.linspace(0, length, min(length, buckets_max) + 1).astype(np.int64)[:-1])


def _curves(feature: VectorFeature, values_LD: np.ndarray, starts: np.ndarray) -> list[dict[str, Any]]:
    finite_LD = np.where(np.isfinite(values_LD), values_LD, np.nan)
    low_BD, high_BD = np.fmin.reduceat(finite_LD, starts, axis=0), np.fmax.reduceat(finite_LD, starts, axis=0)
    return [
        {"name": name, "min": _numbers(low_BD[:, dim]), "max": _numbers(high_BD[:, dim])}
        for dim, name in enumerate(feature.names)
    ]


def _numbers(column: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in column]
