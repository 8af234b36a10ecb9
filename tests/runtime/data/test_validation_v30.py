"""Planted defects of LeRobot v3.0 datasets, where many episodes share a file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_runtime.data.validation import validate_dataset
from tests.support.lerobot_v21 import CAMERA, edit_json, edit_table, frame_image, write_video
from tests.support.lerobot_v30 import DATA, EPISODES, VIDEO

INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
SEGMENT = f"videos/{CAMERA}/"


def set_episode(column: str, value: Any, episode: int = 1) -> Callable[[Path], Any]:
    return lambda root: edit_table(root / EPISODES, lambda columns: columns[column].__setitem__(episode, value))


def set_cell(column: str, row: int, value: Any) -> Callable[[Path], Any]:
    return lambda root: edit_table(root / DATA, lambda columns: columns[column].__setitem__(row, value))


def cut(file: str, keep: float) -> Callable[[Path], Any]:
    return lambda root: os.truncate(root / file, int((root / file).stat().st_size * keep))


def jsonl_tasks(root: Path) -> None:
    """What a half-converted dataset has: the tasks of v2.1."""
    (root / TASKS).unlink()
    (root / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "push the cube"}\n')


def short_video(root: Path) -> None:
    write_video(root / VIDEO, [frame_image(0, frame) for frame in range(25)])


def tasks_of_numbers(root: Path) -> None:
    pq.write_table(pa.table({"task_index": [0, 1], "task": [1.5, 2.5]}), root / TASKS)


PLANTED = {
    "statistics missing": (lambda root: (root / STATS).unlink(), "statistics_missing", {"file": STATS}, "warning"),
    "statistics of a camera missing": (
        lambda root: edit_json(root / STATS, lambda stats: stats.pop(CAMERA)),
        "statistics_missing", {"file": STATS, "feature": CAMERA}, "warning",
    ),
    "statistics of other data": (
        lambda root: edit_json(root / STATS, lambda stats: stats["action"].update(mean=[0.3, 0.3])),
        "statistics_disagree", {"file": STATS, "feature": "action"}, "error",
    ),
    "image std above 0.5": (
        lambda root: edit_json(root / STATS, lambda stats: stats[CAMERA].update(std=[[[0.51]]] * 3)),
        "statistics_impossible", {"file": STATS, "feature": CAMERA}, "error",
    ),
    "red and blue exchanged in the statistics": (
        lambda root: edit_json(root / STATS, lambda stats: [values.reverse() for values in stats[CAMERA].values()]),
        "channels_swapped", {"file": STATS, "feature": CAMERA}, "warning",
    ),
    "length against range": (set_episode("length", 9), "episode_length", {"file": EPISODES, "episode": 1}, "error"),
    "a gap between episodes": (
        lambda root: edit_table(root / EPISODES, lambda columns: columns.update(
            dataset_from_index=[0, 13, 21], dataset_to_index=[12, 21, 31])),
        "episode_range", {"episode": 1}, "error",
    ),
    "from after to": (
        set_episode(SEGMENT + "from_timestamp", 2.5), "video_segment", {"episode": 1, "feature": CAMERA}, "error"),
    "segments overlap": (
        lambda root: edit_table(root / EPISODES, lambda columns: columns.update({
            SEGMENT + "from_timestamp": [0.0, 0.9, 2.0], SEGMENT + "to_timestamp": [1.2, 1.7, 3.0]})),
        "video_segment", {"file": VIDEO, "episode": 1, "feature": CAMERA}, "error",
    ),
    "segment not on a frame": (
        lambda root: edit_table(root / EPISODES, lambda columns: columns.update({
            SEGMENT + "from_timestamp": [0.0, 1.23, 2.0], SEGMENT + "to_timestamp": [1.2, 2.0, 3.0]})),
        "video_frames_missing", {"file": VIDEO, "episode": 1, "frame": 0, "feature": CAMERA}, "error",
    ),
    "time below zero": (
        set_episode(SEGMENT + "from_timestamp", -1.0), "episode_metadata", {"file": EPISODES, "episode": 1}, "error"),
    "the last episode's video is short": (
        short_video, "video_truncated", {"file": VIDEO, "episode": 2, "frame": 5, "feature": CAMERA}, "error"),
    "a video file that is not there": (
        set_episode(SEGMENT + "file_index", 7, 2), "camera_missing", {"episode": 2, "feature": CAMERA}, "error"),
    "a data file that is not there": (set_episode("data/file_index", 7, 2), "file_missing", {"episode": 2}, "error"),
    "rows of another episode": (
        set_cell("episode_index", 15, 0), "episode_index_mismatch", {"file": DATA, "episode": 1, "frame": 3}, "error"),
    "a NaN in a shared file": (
        set_cell("action", 29, [0.0, float("nan")]), "not_finite",
        {"file": DATA, "episode": 2, "frame": 9, "feature": "action"}, "error",
    ),
    "time restarts late": (
        set_cell("timestamp", 12, 1.2), "timestamps_start", {"file": DATA, "episode": 1, "frame": 0}, "error"),
    "tasks of v2.1": (jsonl_tasks, "file_missing", {"file": TASKS}, "error"),
    "tasks that are numbers": (tasks_of_numbers, "task_metadata", {"file": TASKS}, "error"),
    "no episode tables": (lambda root: (root / EPISODES).unlink(), "file_missing", {"file": "meta/episodes"}, "error"),
    "an episode table without a camera": (
        lambda root: edit_table(root / EPISODES, lambda columns: columns.pop(SEGMENT + "from_timestamp")),
        "column_missing", {"file": EPISODES, "feature": SEGMENT + "from_timestamp"}, "error",
    ),
    "a truncated episode table": (cut(EPISODES, 0.8), "parquet_truncated", {"file": EPISODES}, "error"),
    "a truncated data file": (cut(DATA, 0.5), "parquet_truncated", {"file": DATA}, "error"),
    "a truncated video": (cut(VIDEO, 0.7), "video_truncated", {"file": VIDEO, "feature": CAMERA}, "error"),
    "a recorded schema that is no schema": (
        lambda root: (root / "meta/joynexus.json").write_text(json.dumps({"schema": {"cameras": []}})),
        "declared_invalid", {"file": "meta/joynexus.json"}, "error",
    ),
}  # fmt: skip


def test_a_recorded_dataset_has_no_defect_at_all(v30: Path) -> None:
    report = validate_dataset(v30)
    assert report.defects == ()
    assert report.summary is not None
    assert report.summary.codebase_version == "v3.0"


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_and_named(v30: Path, name: str) -> None:
    plant, code, place, severity = PLANTED[name]
    plant(v30)
    report = validate_dataset(v30)
    found = [defect for defect in report.defects if (defect.code, defect.severity) == (code, severity)]
    assert any(all(getattr(defect, key) == value for key, value in place.items()) for defect in found), report.defects
    assert report.ok == (severity == "warning"), report.defects
