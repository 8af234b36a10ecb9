"""A LeRobot dataset on disk, v2.1 or v3.x: episodes, vectors and frames by episode and frame index.

Shapes: N frames of the dataset, S state and A action dimensions, L frames of one episode, images RGB uint8 HWC.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from gpu_runtime.data.declared import read_declared
from gpu_runtime.data.episode import Episode
from gpu_runtime.data.episodes import Catalogue, read_catalogue
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.images import decode_image
from gpu_runtime.data.info import DatasetInfo, read_info
from gpu_runtime.data.schema import infer_schema
from gpu_runtime.data.tables import check_row_count, iter_rows, read_columns, scalar_column, vector_column
from gpu_runtime.data.video import decode_at
from gpu_runtime.protocol.schema import DatasetPreset, DatasetSchema


class LeRobotDataset:
    """Metadata is read on ``open``; vectors on first use; frames when asked for. Positions count episodes from 0."""

    def __init__(self, root: Path, info: DatasetInfo, catalogue: Catalogue, schema: DatasetSchema) -> None:
        self.root, self.info, self.schema = root, info, schema
        self.preset: DatasetPreset | None = None  # whose conventions the importer says it follows
        self.episodes: tuple[Episode, ...] = catalogue.episodes
        self.tasks: Mapping[int, str] = catalogue.tasks
        self._starts = np.cumsum([0, *(episode.length for episode in catalogue.episodes)])

    @classmethod
    def open(cls, path: str | Path, declared: Mapping[str, Any] | None = None) -> Self:
        """Read the metadata of the dataset at ``path``; raises DatasetError naming the file and the field."""
        root = Path(path)
        info = read_info(root)
        known = read_declared(root, declared)
        dataset = cls(root, info, read_catalogue(root, info), infer_schema(info, known))
        dataset.preset = known.preset
        return dataset

    @property
    def frame_count(self) -> int:
        return int(self._starts[-1])

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(episode.length for episode in self.episodes)

    @cached_property
    def positions(self) -> dict[int, int]:
        """Position of an episode by its episode_index; the two differ only in a defective dataset."""
        return {episode.index: position for position, episode in enumerate(self.episodes)}

    def rows(self, episode: int) -> slice:
        """Rows of the episode at this position within ``states_NS()`` and ``actions_NA()``."""
        return slice(int(self._starts[episode]), int(self._starts[episode + 1]))

    def states_NS(self) -> np.ndarray | None:  # noqa: N802
        """Every state in episode order, float32, raw units; None when the dataset has no state."""
        return self._columns["state"]

    def actions_NA(self) -> np.ndarray:  # noqa: N802
        """Every action in episode order, float32, raw units."""
        return self._columns["action"]

    def instruction(self, episode: int, frame: int) -> str:
        """The task text of one frame: by its task_index, else the episode's own."""
        index = int(self._columns["task_index"][self._starts[episode] + frame])
        return self.tasks.get(index, self.episodes[episode].task)

    def timestamps(self, episode: int) -> np.ndarray:
        """Seconds since the start of the episode [L], float64."""
        return self._columns["timestamp"][self.rows(episode)]

    def frames(self, episode: int, frames: Sequence[int], camera: str) -> np.ndarray:
        """Stored frames uint8 [len(frames), H, W, 3] in the order asked, neither turned nor resized."""
        found = dict(self.iter_frames(episode, frames, camera))
        return np.stack([found[frame] for frame in frames])

    def iter_frames(self, episode: int, frames: Sequence[int], camera: str) -> Iterator[tuple[int, np.ndarray]]:
        """(frame, image) in ascending order, each once; one decoded image in memory at a time."""
        if camera not in self.info.features or not self.info.features[camera].is_image:
            raise DatasetError("camera_missing", f"no camera {camera!r}", feature=camera)
        wanted = sorted(set(frames))
        length = self.episodes[episode].length
        if wanted and not 0 <= wanted[0] <= wanted[-1] < length:
            raise IndexError(f"frames {wanted[0]}..{wanted[-1]} of episode {episode}, which has {length}")
        stored = self._stored_frames(episode, wanted, camera)
        for frame in wanted:
            try:
                image_HWC = next(stored)
            except StopIteration:  # fewer rows than the episode claims
                file = self.episodes[episode].data_file
                fault = DatasetError("episode_length", f"{camera}: the file ends before this frame", file=file)
                raise fault.at(self.episodes[episode].index, frame, camera) from None
            except DatasetError as error:
                raise error.at(self.episodes[episode].index, frame, camera) from error.__cause__
            yield frame, image_HWC

    def _stored_frames(self, position: int, wanted: list[int], camera: str) -> Iterator[np.ndarray]:
        episode = self.episodes[position]
        if camera in episode.videos:
            segment = episode.videos[camera]
            times_s = segment.from_s + self.timestamps(position)[wanted]
            yield from decode_at(self.root, segment.file, times_s.tolist())
            return
        chosen = set(wanted)
        frame = 0
        start = episode.row_start
        for cells in iter_rows(self.root, episode.data_file, camera, start, start + episode.length):
            for cell in cells:
                if frame in chosen:
                    yield decode_image(cell.as_py(), file=episode.data_file, feature=camera)
                frame += 1

    @cached_property
    def _columns(self) -> dict[str, Any]:
        """The vectors and timestamps of every episode, in episode order."""
        names = [self.schema.action.key, "timestamp", "task_index"]
        if self.schema.state is not None:
            names.append(self.schema.state.key)
        per_file = {file: self._read_file(file, names, rows) for file, rows in self.rows_per_file().items()}
        parts = [self._episode_rows(per_file[episode.data_file], episode) for episode in self.episodes]
        state = None if self.schema.state is None else np.concatenate([part["state"] for part in parts])
        joined = {
            name: np.concatenate([part[name] for part in parts]) for name in ("action", "timestamp", "task_index")
        }
        return {"state": state, **joined}

    def rows_per_file(self) -> dict[str, int]:
        """Rows that each data file must have: the frames of its episodes."""
        rows: dict[str, int] = {}
        for episode in self.episodes:
            rows[episode.data_file] = rows.get(episode.data_file, 0) + episode.length
        return rows

    def _read_file(self, file: str, names: list[str], rows: int) -> dict[str, np.ndarray]:
        check_row_count(self.root, file, rows)
        table = read_columns(self.root, file, names)
        columns = {
            "action": vector_column(table, self.schema.action.key, self.schema.action.dim, file),
            "timestamp": scalar_column(table, "timestamp", np.float64, file),
            "task_index": scalar_column(table, "task_index", np.int64, file),
        }
        if self.schema.state is not None:
            columns["state"] = vector_column(table, self.schema.state.key, self.schema.state.dim, file)
        return columns

    @staticmethod
    def _episode_rows(columns: dict[str, np.ndarray], episode: Episode) -> dict[str, np.ndarray]:
        stop = episode.row_start + episode.length
        if stop > len(columns["action"]):
            raise DatasetError(
                "episode_range",
                f"rows {episode.row_start} to {stop} are not all in the file",
                file=episode.data_file,
                episode=episode.index,
            )
        return {name: values[episode.row_start : stop] for name, values in columns.items()}
