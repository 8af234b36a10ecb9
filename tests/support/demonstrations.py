"""Small demonstrations that can be learned: a square is driven to a goal, both are seen by every camera."""

from pathlib import Path

import numpy as np

from gpu_runtime.data.recorder import Recorder
from gpu_runtime.data.validation.report import validate_dataset
from gpu_runtime.protocol.messages import DatasetBinding
from gpu_runtime.protocol.schema import ActionRepresentation, Camera, DatasetSchema, VectorFeature

FPS = 10


def make_dataset(
    path: Path,
    *,
    episodes: int = 6,
    cameras: int = 1,
    state_dim: int = 3,
    action_dim: int = 2,
    image_size: int = 32,
    length: int = 12,
    seed: int = 0,
) -> Path:
    """Record ``episodes`` of about ``length`` frames; actions are a function of the image and the state."""
    keys = [f"observation.images.view{view}" for view in range(cameras)]
    schema = DatasetSchema(
        cameras=tuple(Camera(key=key, height=image_size, width=image_size) for key in keys),
        state=VectorFeature(key="observation.state", names=tuple(f"s{i}" for i in range(state_dim))),
        action=VectorFeature(key="action", names=tuple(f"a{i}" for i in range(action_dim))),
        representation=ActionRepresentation.DELTA_EE_SCALED,
        control_hz=FPS,
    )
    random = np.random.default_rng(seed)
    with Recorder(path, schema, FPS) as recorder:
        for episode in range(episodes):
            recorder.start_episode(f"push the square {'left' if episode % 2 else 'right'}")
            position, goal = random.uniform(0, 1, 2), random.uniform(0, 1, 2)
            for _ in range(length + episode % 3):
                motion = 0.2 * (goal - position)
                image = _draw(image_size, position, goal)
                state = np.resize(np.concatenate([position, goal]), state_dim).astype(np.float32)
                action = np.resize(motion, action_dim).astype(np.float32)
                recorder.add(dict.fromkeys(keys, image), state, action)
                position = position + motion
    return path


def bind(root: Path, path: Path) -> DatasetBinding:
    """Validate the dataset at ``path`` under the dataset root and bind it as the control plane does."""
    report = validate_dataset(path)
    assert report.ok, report.defects
    assert report.summary is not None
    storage_key = path.relative_to(root).as_posix()
    return DatasetBinding(version_id=f"version-{path.name}", storage_key=storage_key, summary=report.summary)


def _draw(size: int, position: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """A grey scene: the square is red, its goal green."""
    image = np.full((size, size, 3), 90, dtype=np.uint8)
    for place, color in ((goal, (40, 200, 60)), (position, (220, 50, 40))):
        row, column = (int(value * (size - 8)) for value in place)
        image[row : row + 8, column : column + 8] = color
    return image
