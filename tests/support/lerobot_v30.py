"""Small, valid LeRobot v3.0 datasets, written by the product's own recorder."""

from pathlib import Path

from gpu_runtime.data.recorder import Recorder
from gpu_runtime.protocol.schema import (
    ActionRepresentation,
    Camera,
    DatasetSchema,
    Gripper,
    GripperConvention,
    VectorFeature,
)
from tests.support.lerobot_v21 import CAMERA, FPS, frame_image, states_and_actions

DATA = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
VIDEO = f"videos/{CAMERA}/chunk-000/file-000.mp4"

SCHEMA = DatasetSchema(
    cameras=(Camera(key=CAMERA, height=32, width=48, rotation_deg=180),),
    state=VectorFeature(key="observation.state", names=("x", "y", "z")),
    action=VectorFeature(key="action", names=("dx", "dy")),
    representation=ActionRepresentation.DELTA_EE_SCALED,
    gripper=Gripper(index=1, convention=GripperConvention.OPEN_POSITIVE),
    control_hz=20,
    robot_type="test_arm",
)


def write_v30(root: Path, *, lengths: tuple[int, ...] = (12, 8, 10), schema: DatasetSchema = SCHEMA) -> Path:
    """The episodes of ``write_v21``, recorded."""
    with Recorder(root, schema, FPS) as recorder:
        for episode, length in enumerate(lengths):
            recorder.start_episode(["push the cube", "pick the cube"][episode % 2])
            states, actions = states_and_actions(length, episode)
            for frame in range(length):
                recorder.add({CAMERA: frame_image(episode, frame)}, states[frame], actions[frame])
    return root
