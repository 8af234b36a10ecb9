"""LeRobot v2.1 tables: JSON lines, one parquet and one video per camera for each episode."""

from pathlib import Path

from gpu_runtime.data.episode import Episode, VideoSegment, checked_count, checked_task, checked_tasks
from gpu_runtime.data.files import fill_template, iter_json_lines
from gpu_runtime.data.info import DatasetInfo

EPISODES_FILE = "meta/episodes.jsonl"
TASKS_FILE = "meta/tasks.jsonl"
STATISTICS_FILE = "meta/episodes_stats.jsonl"


def read_tasks(root: Path) -> dict[int, str]:
    """Instruction by task index."""
    return {
        checked_count(row.get("task_index"), "task_index", TASKS_FILE): checked_task(row.get("task"), TASKS_FILE)
        for row in iter_json_lines(root, TASKS_FILE)
    }


def read_episodes(root: Path, info: DatasetInfo) -> list[Episode]:
    """Episodes in file order; file names follow the templates of info.json."""
    numbered = [
        (checked_count(row.get("episode_index"), "episode_index", EPISODES_FILE), row)
        for row in iter_json_lines(root, EPISODES_FILE)
    ]
    numbered.sort(key=lambda pair: pair[0])
    episodes, from_index = [], 0
    for index, row in numbered:
        length = checked_count(row.get("length"), "length", EPISODES_FILE, episode=index)
        place: dict[str, int | str] = {"episode_chunk": index // info.chunks_size, "episode_index": index}
        videos = {
            key: VideoSegment(file=fill_template(info.video_path or "", video_key=key, **place), from_s=0.0, to_s=None)
            for key, feature in info.features.items()
            if feature.dtype == "video"
        }
        episodes.append(
            Episode(
                index=index,
                length=length,
                tasks=checked_tasks(row.get("tasks"), EPISODES_FILE, index),
                data_file=fill_template(info.data_path, **place),
                row_start=0,
                from_index=from_index,
                videos=videos,
            )
        )
        from_index += length
    return episodes
