"""The ``meta`` folder of LeRobot v3.0, with two files more: what info.json cannot declare, and how it was recorded."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_runtime.data.declared import DECLARED_FILE, declared_from
from gpu_runtime.data.recording.series import (
    CHUNKS_SIZE,
    DATA_FILE_MB_MAX,
    DATA_PATH,
    VIDEO_FILE_MB_MAX,
    VIDEO_PATH,
)
from gpu_runtime.data.recording.statistics import Summary
from gpu_runtime.data.recording.video import CODEC, PIXEL_FORMAT
from gpu_runtime.protocol.schema import Camera, DatasetSchema

_BOOKKEEPING = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


def write_metadata(
    root: Path,
    *,
    schema: DatasetSchema,
    fps: int,
    tasks: Sequence[str],
    episodes: Sequence[Mapping[str, Any]],
    summaries: Mapping[str, Summary],
    description: Mapping[str, Any],
) -> None:
    """Write every file of ``meta``. ``episodes`` are rows of the episodes table; ``summaries`` cover every frame."""
    meta = root / "meta"
    (meta / "episodes" / "chunk-000").mkdir(parents=True)
    frames = episodes[-1]["dataset_to_index"]
    _write_json(meta / "info.json", _info(schema, fps, episodes=len(episodes), frames=frames, tasks=len(tasks)))
    _write_json(
        meta / "stats.json",
        {key: {name: values.tolist() for name, values in summary.items()} for key, summary in summaries.items()},
    )
    _write_tasks(meta / "tasks.parquet", tasks)
    place = {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
    table = pa.Table.from_pylist([dict(row) | place for row in episodes])
    pq.write_table(table, meta / "episodes" / "chunk-000" / "file-000.parquet")
    _write_json(root / DECLARED_FILE, declared_from(schema).model_dump(mode="json"))
    _write_json(meta / "recording.json", dict(description))


def statistics_columns(summaries: Mapping[str, Summary]) -> dict[str, list[Any]]:
    """Columns ``stats/<feature>/<statistic>`` of one episode row."""
    return {
        f"stats/{feature}/{name}": values.tolist()
        for feature, summary in summaries.items()
        for name, values in summary.items()
    }


def _write_tasks(path: Path, tasks: Sequence[str]) -> None:
    """``task_index``, with the task text as the index of the pandas frame that LeRobot reads."""
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "__index_level_0__": list(tasks)})
    described: list[dict[str, Any]] = [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"},
        {"name": None, "field_name": "__index_level_0__", "pandas_type": "unicode", "numpy_type": "object"},
    ]
    pandas = {
        "index_columns": ["__index_level_0__"],
        "column_indexes": [],
        "columns": [column | {"metadata": None} for column in described],
    }
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _video_feature(camera: Camera, fps: int) -> dict[str, Any]:
    return {
        "dtype": "video",
        "shape": [camera.height, camera.width, 3],
        "names": ["height", "width", "channels"],
        "info": {
            "video.height": camera.height,
            "video.width": camera.width,
            "video.codec": CODEC,
            "video.pix_fmt": PIXEL_FORMAT,
            "video.is_depth_map": False,
            "video.fps": fps,
            "video.channels": 3,
            "has_audio": False,
        },
    }


def _features(schema: DatasetSchema, fps: int) -> dict[str, Any]:
    vectors = [vector for vector in (schema.state, schema.action) if vector is not None]
    return (
        {vector.key: {"dtype": "float32", "shape": [vector.dim], "names": list(vector.names)} for vector in vectors}
        | {camera.key: _video_feature(camera, fps) for camera in schema.cameras}
        | {name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in _BOOKKEEPING.items()}
    )


def _info(schema: DatasetSchema, fps: int, *, episodes: int, frames: int, tasks: int) -> dict[str, Any]:
    return {
        "codebase_version": "v3.0",
        "robot_type": schema.robot_type,
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": CHUNKS_SIZE,
        "data_files_size_in_mb": DATA_FILE_MB_MAX,
        "video_files_size_in_mb": VIDEO_FILE_MB_MAX,
        "fps": fps,
        "splits": {"train": f"0:{episodes}"},
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH if schema.cameras else None,
        "features": _features(schema, fps),
    }
