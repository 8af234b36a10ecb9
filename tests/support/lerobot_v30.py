"""Small, valid LeRobot v3.0 datasets, written by the product's own recorder."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_runtime.data.recorder import Recorder
from gpu_runtime.protocol.schema import (
    ActionRepresentation,
    Camera,
    DatasetSchema,
    Gripper,
    GripperConvention,
    VectorFeature,
)
from tests.support.lerobot_v21 import (
    CAMERA,
    FPS,
    edit_json,
    edit_table,
    frame_image,
    png,
    states_and_actions,
    write_video,
)

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


def split_files(root: Path) -> None:
    """Move episodes 1 and 2 into second data and video files, as a writer does when the first ones are full."""
    table = pq.read_table(root / DATA)
    pq.write_table(table.slice(0, 12), root / DATA)
    pq.write_table(table.slice(12), root / DATA.replace("file-000", "file-001"), row_group_size=5)
    write_video(root / VIDEO, [frame_image(0, frame) for frame in range(12)])
    later = [frame_image(1, frame) for frame in range(8)] + [frame_image(2, frame) for frame in range(10)]
    write_video(root / VIDEO.replace("file-000", "file-001"), later)
    place = f"videos/{CAMERA}/"
    moved = {
        "data/file_index": [0, 1, 1],
        f"{place}file_index": [0, 1, 1],
        f"{place}from_timestamp": [0.0, 0.0, 0.8],
        f"{place}to_timestamp": [1.2, 0.8, 1.8],
    }
    edit_table(root / EPISODES, lambda columns: columns.update(moved))


def store_images(root: Path) -> None:
    """Turn the video feature into PNG cells of the data files."""
    for file in sorted((root / "data").rglob("*.parquet")):
        table = pq.read_table(file)
        pairs = zip(table["episode_index"].to_pylist(), table["frame_index"].to_pylist(), strict=True)
        cells = [{"bytes": png(frame_image(episode, frame)), "path": None} for episode, frame in pairs]
        pq.write_table(table.append_column(CAMERA, pa.array(cells)), file, row_group_size=5)
    edit_json(root / "meta/info.json", lambda info: info["features"][CAMERA].update(dtype="image"))
    shutil.rmtree(root / "videos")
