"""LeRobot v3.0 tables: parquet metadata; many episodes share one data file and one video file per camera."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_runtime.data.episode import Episode, VideoSegment, checked_count, checked_task, checked_tasks
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import fill_template
from gpu_runtime.data.info import DatasetInfo
from gpu_runtime.data.tables import open_parquet, read_rows

EPISODES_FILE = "meta/episodes"
TASKS_FILE = "meta/tasks.parquet"
STATISTICS_FILE = "meta/stats.json"
_PANDAS_INDEX = "__index_level_0__"
_PLACE = ("data/chunk_index", "data/file_index", "dataset_from_index", "dataset_to_index")
_VIDEO_PLACE = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")


def read_tasks(root: Path) -> dict[int, str]:
    """Instruction by task index; the text is the pandas index of the table, named ``task`` or not at all."""
    names = open_parquet(root, TASKS_FILE).schema_arrow.names
    text = next((name for name in ("task", _PANDAS_INDEX) if name in names), "task")
    rows = read_rows(root, TASKS_FILE, ["task_index", text])
    return {
        checked_count(row["task_index"], "task_index", TASKS_FILE): checked_task(row[text], TASKS_FILE) for row in rows
    }


def _seconds(row: Mapping[str, Any], column: str, file: str, episode: int) -> float:
    value = row[column]
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise DatasetError(
            "episode_metadata", f"{column} is {value!r:.80}; seconds expected", file=file, episode=episode
        )
    return float(value)


def _segment(row: Mapping[str, Any], key: str, info: DatasetInfo, file: str, episode: int) -> VideoSegment:
    chunk, number = (
        checked_count(row[f"videos/{key}/{name}"], f"videos/{key}/{name}", file, episode=episode)
        for name in _VIDEO_PLACE[:2]
    )
    return VideoSegment(
        file=fill_template(info.video_path or "", video_key=key, chunk_index=chunk, file_index=number),
        from_s=_seconds(row, f"videos/{key}/from_timestamp", file, episode),
        to_s=_seconds(row, f"videos/{key}/to_timestamp", file, episode),
    )


def _episode(row: Mapping[str, Any], info: DatasetInfo, cameras: list[str], file: str) -> Episode:
    index = checked_count(row["episode_index"], "episode_index", file)
    chunk, number, start, stop = (checked_count(row[name], name, file, episode=index) for name in _PLACE)
    length = checked_count(row["length"], "length", file, episode=index)
    if stop - start != length:
        raise DatasetError(
            "episode_length",
            f"length is {length}, but dataset_to_index {stop} - dataset_from_index {start} is {stop - start}",
            file=file,
            episode=index,
        )
    return Episode(
        index=index,
        length=length,
        tasks=checked_tasks(row["tasks"], file, index),
        data_file=fill_template(info.data_path, chunk_index=chunk, file_index=number),
        row_start=start,
        from_index=start,
        videos={key: _segment(row, key, info, file, index) for key in cameras},
    )


def _with_rows_counted_per_file(episodes: list[Episode]) -> list[Episode]:
    """``row_start`` within the data file: the file's first episode starts it."""
    first: dict[str, int] = {}
    for episode in episodes:
        first[episode.data_file] = min(first.get(episode.data_file, episode.from_index), episode.from_index)
    return [
        Episode(
            index=episode.index,
            length=episode.length,
            tasks=episode.tasks,
            data_file=episode.data_file,
            row_start=episode.from_index - first[episode.data_file],
            from_index=episode.from_index,
            videos=episode.videos,
        )
        for episode in episodes
    ]


def read_episodes(root: Path, info: DatasetInfo) -> list[Episode]:
    """Episodes of every file under meta/episodes, without their per-episode statistics."""
    files = sorted(path.relative_to(root).as_posix() for path in (root / EPISODES_FILE).glob("*/*.parquet"))
    if not files:
        raise DatasetError("file_missing", f"{EPISODES_FILE} holds no parquet file", file=EPISODES_FILE)
    cameras = [key for key, feature in info.features.items() if feature.dtype == "video"]
    columns = ["episode_index", "tasks", "length", *_PLACE]
    columns += [f"videos/{key}/{name}" for key in cameras for name in _VIDEO_PLACE]
    episodes = []
    for file in files:
        episodes += [_episode(row, info, cameras, file) for row in read_rows(root, file, columns)]
    return _with_rows_counted_per_file(episodes)
