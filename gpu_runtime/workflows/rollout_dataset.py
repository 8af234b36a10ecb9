"""Episodes from the shelf as a LeRobot v3.0 dataset, as recorded demonstrations are."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_runtime.data.recorder import Recorder
from gpu_runtime.protocol.schema import Camera, DatasetSchema
from gpu_runtime.workflows.rollout_shelf import EpisodeShelf, RolloutEpisode


class RecordingStopped(Exception):
    """The job was stopped while its dataset was being written; nothing is left of it."""


def recorded_schema(environment: DatasetSchema, keys: Sequence[str] | None = None) -> DatasetSchema:
    """What a dataset declares that holds pictures as policies see them: upright ones, under the policy's ``keys``.

    Keys are in the cameras' order; None: those of the environment.
    """
    cameras = environment.cameras
    names = [camera.key for camera in cameras] if keys is None else keys
    upright = tuple(_upright(camera, key) for camera, key in zip(cameras, names, strict=True))
    return environment.model_copy(update={"cameras": upright})


def _upright(camera: Camera, key: str) -> Camera:
    turned = camera.rotation_deg % 180 != 0
    size = (camera.width, camera.height) if turned else (camera.height, camera.width)
    return camera.model_copy(update={"key": key, "rotation_deg": 0, "height": size[0], "width": size[1]})


def record_dataset(
    path: Path,
    schema: DatasetSchema,
    shelf: EpisodeShelf,
    episodes: Sequence[RolloutEpisode],
    *,
    description: Mapping[str, Any],
    stopped: Callable[[], bool],
) -> int:
    """Write the dataset, whole or not at all; one that a try before left is replaced. Returns its frames.

    Raises RecordingError, RecordingStopped and OSError.
    """
    shutil.rmtree(path, ignore_errors=True)
    keys = [camera.key for camera in schema.cameras]
    with Recorder(path, schema, round(schema.control_hz or 0), description=description) as recorder:
        for episode in episodes:
            if stopped():
                raise RecordingStopped
            rows = shelf.rows(episode.index)
            recorder.start_episode(episode.instruction)
            for images, state_S, action_A in zip(rows.images, rows.states, rows.actions, strict=True):
                recorder.add(dict(zip(keys, images, strict=True)), state_S if schema.state else None, action_A)
            recorder.end_episode()
        return recorder.frames
