"""Writes small, valid LeRobot v2.1 datasets (and edits them into broken ones). Nothing of the product writes v2.1."""

import io
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CAMERA = "observation.images.front"
DATA = "data/chunk-000/episode_{:06d}.parquet"
VIDEO = "videos/chunk-000/" + CAMERA + "/episode_{:06d}.mp4"
FPS = 10
STATE_DIM, ACTION_DIM = 3, 2


def frame_image(episode: int, frame: int, height: int = 32, width: int = 48) -> np.ndarray:
    """A picture that tells episode (blue) and frame (green); flat red; brighter towards the right."""
    ramp = np.linspace(0, 40, width)[None, :, None] * np.ones((height, 1, 1))
    return (np.array([180, 20 + 12 * frame, 10 + 30 * episode]) + ramp).clip(0, 255).astype(np.uint8)


def states_and_actions(length: int, episode: int) -> tuple[np.ndarray, np.ndarray]:
    """Smooth float32 [length, STATE_DIM] and [length, ACTION_DIM], different for each episode."""
    time = np.arange(length)[:, None] / FPS + episode
    states = np.sin(time * np.arange(1, STATE_DIM + 1))
    return states.astype(np.float32), np.cos(time * np.arange(1, ACTION_DIM + 1)).astype(np.float32)


def write_video(
    path: Path, images: list[np.ndarray], *, codec: str = "libx264", fps: int = FPS, bframes: int = 0
) -> None:
    """An mp4 whose frame i is at i / fps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "libx264": {"preset": "veryfast", "qp": "4", "bf": str(bframes), "g": "12"},
        "libsvtav1": {"preset": "12", "crf": "10", "g": "6", "svtav1-params": "lp=1"},
    }[codec]
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream(codec, rate=fps, options=options)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for number, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def write_v21(
    root: Path,
    *,
    lengths: tuple[int, ...] = (12, 8, 10),
    images_as: str = "video",
    codec: str = "libx264",
    bframes: int = 0,
) -> Path:
    """A valid dataset with one 32x48 camera, as video or as PNG cells."""
    (root / "meta").mkdir(parents=True)
    stats, first = [], 0
    for episode, length in enumerate(lengths):
        states, actions = states_and_actions(length, episode)
        images = [frame_image(episode, frame) for frame in range(length)]
        columns = _columns(states, actions, episode, first)
        if images_as == "video":
            write_video(root / VIDEO.format(episode), images, codec=codec, bframes=bframes)
        else:
            columns[CAMERA] = pa.array([{"bytes": png(image), "path": None} for image in images])
        path = root / DATA.format(episode)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
        stats.append({"episode_index": episode, "stats": _stats(states, actions, images)})
        first += length
    _write_metadata(root, lengths, images_as, stats)
    return root


def _columns(states: np.ndarray, actions: np.ndarray, episode: int, first: int) -> dict[str, pa.Array]:
    length = len(states)
    order = np.arange(length, dtype=np.int64)
    return {
        "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(states.ravel()), STATE_DIM),
        "action": pa.array(actions.tolist(), pa.list_(pa.float32())),
        "timestamp": pa.array((order / FPS).astype(np.float32)),
        "frame_index": pa.array(order),
        "episode_index": pa.array(np.full(length, episode)),
        "index": pa.array(order + first),
        "task_index": pa.array(np.full(length, episode % 2)),
    }


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _stats(states: np.ndarray, actions: np.ndarray, images: list[np.ndarray]) -> dict[str, Any]:
    pixels = np.stack(images).reshape(-1, 3) / 255
    result = {
        key: {
            "min": values.min(axis=0),
            "max": values.max(axis=0),
            "mean": values.mean(axis=0),
            "std": values.std(axis=0),
            "count": np.array([len(states)]),
        }
        for key, values in (("observation.state", states), ("action", actions), (CAMERA, pixels))
    }
    lists = {key: {name: value.tolist() for name, value in block.items()} for key, block in result.items()}
    for name in ("min", "max", "mean", "std"):
        lists[CAMERA][name] = [[[value]] for value in lists[CAMERA][name]]
    return lists


def _write_metadata(root: Path, lengths: tuple[int, ...], images_as: str, stats: list[dict[str, Any]]) -> None:
    scalars = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64"}
    features = {
        "observation.state": {"dtype": "float32", "shape": [STATE_DIM], "names": [["x", "y", "z"]]},
        "action": {"dtype": "float32", "shape": [ACTION_DIM], "names": {"motors": ["dx", "dy"]}},
        CAMERA: {"dtype": images_as, "shape": [32, 48, 3], "names": ["height", "width", "channel"]},
        **{key: {"dtype": dtype, "shape": [1], "names": None} for key, dtype in scalars.items()},
        "task_index": {"dtype": "int64", "shape": [1], "names": None},
    }
    info = {
        "codebase_version": "v2.1",
        "robot_type": "test_arm",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": 2,
        "total_videos": len(lengths),
        "total_chunks": 1,
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features,
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    tasks = ["push the cube", "pick the cube"]
    write_lines(root / "meta/tasks.jsonl", [{"task_index": i, "task": task} for i, task in enumerate(tasks)])
    write_lines(
        root / "meta/episodes.jsonl",
        [{"episode_index": i, "tasks": [tasks[i % 2]], "length": length} for i, length in enumerate(lengths)],
    )
    write_lines(root / "meta/episodes_stats.jsonl", stats)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def edit_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Apply ``change`` to the parsed file in place."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_lines(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Apply ``change`` to the list of parsed lines in place."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    change(rows)
    write_lines(path, rows)


def edit_table(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Apply ``change`` to the columns (name -> list) of a parquet file in place; changed columns are re-typed."""
    table = pq.read_table(path)
    before = table.to_pydict()
    after = table.to_pydict()
    change(after)
    same = {name: table.column(name) for name in after if name in before and len(before[name]) == len(after[name])}
    kept = {name: column for name, column in same.items() if _equal(before[name], after[name])}
    types = {field.name: field.type for field in table.schema}
    arrays = {name: kept.get(name, _array(values, types.get(name))) for name, values in after.items()}
    pq.write_table(pa.table(arrays), path)


def _equal(left: list[Any], right: list[Any]) -> bool:
    return repr(left) == repr(right)


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array(values)
