"""One episode: its length, its instruction, and where its rows and video frames lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import is_storable
from gpu_runtime.data.info import COUNT_MAX

TASK_LENGTH_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoSegment:
    """An episode's part of a video file, in seconds of that file. ``to_s`` is None where the format does not say."""

    file: str
    from_s: float
    to_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Rows ``row_start .. row_start + length`` of ``data_file``; ``from_index`` counts frames of the whole dataset."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data_file: str
    row_start: int
    from_index: int
    videos: Mapping[str, VideoSegment]

    @property
    def task(self) -> str:
        """The instruction of the episode (the first, where it has several)."""
        return self.tasks[0] if self.tasks else ""


def checked_count(value: Any, name: str, file: str, *, episode: int | None = None) -> int:
    """``value`` as a count; the metadata of an episode is a claim, not a fact."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= COUNT_MAX:
        raise DatasetError(
            "episode_metadata",
            f"{name} is {value!r:.80}; it must be an integer from 0 to {COUNT_MAX}",
            file=file,
            episode=episode,
        )
    return value


def checked_task(value: Any, file: str, episode: int | None = None) -> str:
    """``value`` as an instruction."""
    if not isinstance(value, str) or len(value) > TASK_LENGTH_MAX or not is_storable(value):
        raise DatasetError(
            "task_metadata",
            f"task is {value!r:.80}; it must be a text of at most {TASK_LENGTH_MAX} characters",
            file=file,
            episode=episode,
        )
    return value


def checked_tasks(value: Any, file: str, episode: int) -> tuple[str, ...]:
    """``value`` as a tuple of instructions."""
    if not isinstance(value, list):
        raise DatasetError(
            "task_metadata", f"tasks is {value!r:.80}; it must be a list of texts", file=file, episode=episode
        )
    return tuple(checked_task(task, file, episode) for task in value)
