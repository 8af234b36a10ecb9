"""Played episodes on disk until they become a dataset: one file each, whole or absent, so that a resumed job goes on.

Shapes: N steps of an episode, H height, W width in pixels, S state dimensions, A action dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gpu_runtime.environments.results import Observation
from gpu_runtime.protocol.base import Message
from gpu_runtime.store.files import sweep_unfinished, sync_folder, write_atomic

_RECORD = "record"  # in the metadata of a file


class RolloutEpisode(Message):
    """How a planned episode went. ``index``: its place in the plan; ``initial_state``: None where it did not begin."""

    index: int
    seed: int
    kept: bool  # it belongs into the dataset
    solved_at_reset: bool = False
    success_once: bool = False
    success_at_end: bool = False
    steps: int = 0
    env_return: float = 0.0
    instruction: str = ""
    initial_state: str | None = None


@dataclass(slots=True, kw_only=True)
class Rows:
    """One row per step: what was there before it, and the action as the environment got it."""

    images: list[tuple[np.ndarray, ...]] = field(default_factory=list)  # uint8 [H, W, 3] per view
    states: list[np.ndarray] = field(default_factory=list)  # float32 [S]
    actions: list[np.ndarray] = field(default_factory=list)  # float32 [A]

    def add(self, before: Observation, action_A: np.ndarray) -> None:
        self.images.append(before.images)
        self.states.append(before.state_S)
        self.actions.append(action_A.copy())

    def arrays(self) -> dict[str, np.ndarray]:
        """[N, ...] each."""
        views = {f"image.{at:02d}": np.stack(view) for at, view in enumerate(zip(*self.images, strict=True))}
        return views | {"state": np.stack(self.states), "action": np.stack(self.actions)}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The rows that ``arrays`` took apart."""
        views = [arrays[name] for name in sorted(arrays) if name.startswith("image.")]
        steps = range(len(arrays["action"]))
        return cls(
            images=[tuple(view[step] for view in views) for step in steps],
            states=list(arrays["state"]),
            actions=list(arrays["action"]),
        )


class EpisodeShelf:
    """``folder``/episode-<index>.safetensors. Every method blocks on the disk and raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self) -> bool:
        """True when it was begun before: by a process that did not come to the end."""
        if self._folder.exists():
            sweep_unfinished(self._folder)
            return True
        self._folder.mkdir(parents=True)
        sync_folder(self._folder.parent)
        return False

    def records(self) -> list[RolloutEpisode]:
        """Everything on the shelf, in the plan's order. A file of another version of this program is played again."""
        found = []
        for path in sorted(self._folder.glob("episode-*.safetensors")):
            try:
                with safe_open(path, framework="numpy") as file:
                    found.append(RolloutEpisode.model_validate_json(file.metadata()[_RECORD]))
            except (SafetensorError, ValueError, KeyError, TypeError):
                continue
        return found

    def put(self, record: RolloutEpisode, rows: Rows | None) -> None:
        """Return when it is on disk; only what is kept needs rows."""
        arrays = rows.arrays() if rows is not None and record.kept else {"none": np.zeros(0, np.uint8)}
        write_atomic(self._path(record.index), save(arrays, {_RECORD: record.model_dump_json()}))

    def rows(self, index: int) -> Rows:
        """Of an episode that is kept."""
        with safe_open(self._path(index), framework="numpy") as file:
            return Rows.of({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 - no mapping

    def _path(self, index: int) -> Path:
        return self._folder / f"episode-{index:07d}.safetensors"


def chosen(records: Sequence[RolloutEpisode], most: int) -> list[RolloutEpisode]:
    """The first ``most`` of the plan that are kept: those that the dataset is made of."""
    return [record for record in sorted(records, key=lambda record: record.index) if record.kept][:most]
