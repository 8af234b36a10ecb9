"""The episodes of a dataset, whatever the format: where each one's rows and video frames lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gpu_runtime.data import episodes_v21, episodes_v30
from gpu_runtime.data.episode import Episode
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.info import DatasetInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Every episode in index order, and the instruction of each task index."""

    episodes: tuple[Episode, ...]
    tasks: Mapping[int, str]


def read_catalogue(root: Path, info: DatasetInfo) -> Catalogue:
    """Read the episode and task tables of v2.1 or v3.0; refuses an empty dataset and repeated indices."""
    reader = episodes_v21 if info.major == 2 else episodes_v30
    tasks = reader.read_tasks(root)
    episodes = sorted(reader.read_episodes(root, info), key=lambda episode: episode.index)
    if not episodes:
        raise DatasetError("dataset_empty", "the dataset has no episodes", file=reader.EPISODES_FILE)
    for before, after in pairwise(episodes):
        if before.index == after.index:
            raise DatasetError(
                "episode_repeated",
                f"episode_index {after.index} occurs twice",
                file=reader.EPISODES_FILE,
                episode=after.index,
            )
    return Catalogue(episodes=tuple(episodes), tasks=tasks)
