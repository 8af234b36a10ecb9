"""What a recorded frame must look like, and the named errors that refuse it.

Shapes: H height, W width in pixels; S state dimensions, A action dimensions.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gpu_runtime.protocol.schema import Camera, DatasetSchema, VectorFeature


class RecordingError(ValueError):
    """A frame, an episode or a whole recording is refused."""


class WrongCameras(RecordingError):
    """The views of a frame are not exactly the schema's cameras."""


class WrongShape(RecordingError):
    """An image or a vector does not have the schema's size."""


class WrongType(RecordingError):
    """An image is not uint8, a vector is not float32, or a value is not an array."""


class NotFinite(RecordingError):
    """A state or an action holds NaN or infinity."""


class UnnamedTask(RecordingError):
    """An episode without a text that says what it shows."""


class EmptyEpisode(RecordingError):
    """An episode was closed before its first frame."""


class EmptyRecording(RecordingError):
    """A recording was closed before its first episode."""


class NoOpenEpisode(RecordingError):
    """A frame or an end without a started episode."""


class RecordingClosed(RecordingError):
    """The recording was closed or aborted before."""


class PathTaken(RecordingError):
    """Something exists where the recording should be."""


class UnrecordableSchema(RecordingError):
    """The schema or frame rate cannot be written as LeRobot v3.0 with H.264 video."""


def check_schema(schema: DatasetSchema, fps: int) -> None:
    """Refuse what the format cannot hold: odd image sizes, reserved or repeated names, a fractional rate."""
    if isinstance(fps, bool) or not isinstance(fps, int) or not 0 < fps <= 1000:
        raise UnrecordableSchema(f"fps is {fps!r}; it must be an integer from 1 to 1000")
    vectors = [schema.action] if schema.state is None else [schema.state, schema.action]
    keys = [camera.key for camera in schema.cameras] + [vector.key for vector in vectors]
    reserved = {"timestamp", "frame_index", "episode_index", "index", "task_index"}
    for key in keys:
        if key in reserved or keys.count(key) > 1 or "/" in key or key.startswith("."):
            raise UnrecordableSchema(f"feature key {key!r} is reserved, repeated, or holds a slash")
    for vector in vectors:
        if vector.dim == 0 or len(set(vector.names)) != vector.dim:
            raise UnrecordableSchema(f"{vector.key}: names are {vector.names}; give each dimension its own name")
    for camera in schema.cameras:
        if camera.height % 2 or camera.width % 2:
            raise UnrecordableSchema(
                f"{camera.key} is {camera.height}x{camera.width} pixels; yuv420p video needs even height and width"
            )


def check_task(task: object) -> None:
    """Refuse an episode without an instruction."""
    if not isinstance(task, str) or not task.strip():
        raise UnnamedTask(f"task is {task!r}; it must be a text that says what the episode shows")


def check_path(path: Path) -> None:
    """Refuse to write over anything, or into a folder that is not there."""
    if path.exists() or path.is_symlink():
        raise PathTaken(f"{path} exists; a recording never overwrites: choose another path or remove it")
    if not path.parent.is_dir():
        raise PathTaken(f"folder {path.parent} does not exist; create it first")


def _check_image(camera: Camera, image: object) -> None:
    """``image`` must be uint8 [H, W, 3] of the camera's size."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        raise WrongType(f"{camera.key} is {_type_name(image)}; it must be a uint8 array")
    if image.shape != (camera.height, camera.width, 3):
        raise WrongShape(
            f"{camera.key} has shape {image.shape}; it must be {(camera.height, camera.width, 3)} (H, W, 3)"
        )


def _check_vector(feature: VectorFeature, vector: object) -> None:
    """``vector`` must be finite float32 [dim]."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float32:
        raise WrongType(f"{feature.key} is {_type_name(vector)}; it must be a float32 array")
    if vector.shape != (feature.dim,):
        raise WrongShape(f"{feature.key} has shape {vector.shape}; it must be {(feature.dim,)}")
    wrong = np.flatnonzero(~np.isfinite(vector))
    if wrong.size:
        raise NotFinite(f"{feature.key}: dimension {feature.names[wrong[0]]!r} is {vector[wrong[0]]}")


def _type_name(value: object) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def check_frame(
    schema: DatasetSchema, images: Mapping[str, np.ndarray], state_S: np.ndarray | None, action_A: np.ndarray
) -> None:
    """Refuse a frame that is not exactly what the schema declares."""
    expected = [camera.key for camera in schema.cameras]
    if sorted(images) != sorted(expected):
        raise WrongCameras(f"views are {sorted(images)}; the schema's cameras are {sorted(expected)}")
    for camera in schema.cameras:
        _check_image(camera, images[camera.key])
    if schema.state is not None:
        _check_vector(schema.state, state_S)
    elif state_S is not None:
        raise WrongShape("a state was given, but the schema declares none")
    _check_vector(schema.action, action_A)
