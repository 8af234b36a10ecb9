"""Write demonstrations as a LeRobot v3.0 dataset, whole or not at all.

Everything goes into a hidden folder next to the target, which ``close`` flushes and renames. Shapes: H height,
W width, S state dimensions, A action dimensions, N frames of one episode, D dimensions of one column.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from gpu_runtime.data.recording.checks import (
    EmptyEpisode,
    EmptyRecording,
    NoOpenEpisode,
    RecordingClosed,
    check_frame,
    check_path,
    check_schema,
    check_task,
)
from gpu_runtime.data.recording.metadata import statistics_columns, write_metadata
from gpu_runtime.data.recording.series import DataSeries, VideoSeries
from gpu_runtime.data.recording.statistics import ImageHistogram, Summary, vector_summary
from gpu_runtime.data.recording.workspace import open_workspace, publish
from gpu_runtime.protocol.schema import DatasetSchema

_Columns = dict[str, np.ndarray]


class _OpenEpisode:
    """The episode being recorded: vectors in memory, images already on their way to the video files."""

    def __init__(self, task: str, schema: DatasetSchema) -> None:
        self.task = task
        self.states: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        self.histograms = {camera.key: ImageHistogram() for camera in schema.cameras}

    def columns(self, schema: DatasetSchema, fps: int, *, index: int, first: int, task_index: int) -> _Columns:
        """Every column of the data file: vectors [N, D] and bookkeeping numbers [N]."""
        count = len(self.actions)
        order = np.arange(count, dtype=np.int64)
        vectors = {} if schema.state is None else {schema.state.key: np.stack(self.states)}
        return vectors | {
            schema.action.key: np.stack(self.actions),
            "timestamp": (order / fps).astype(np.float32),
            "frame_index": order,
            "episode_index": np.full(count, index, np.int64),
            "index": order + first,
            "task_index": np.full(count, task_index, np.int64),
        }


class Recorder:
    """Records episodes of one schema at ``fps`` frames per second into the new folder ``path``.

    ``description`` (JSON-able) goes into ``meta/recording.json``: where the data came from and what to know about it.
    Used as a context manager it closes on success and leaves nothing behind on an exception.
    Raises the errors of ``recording.checks``; a refused frame leaves the recording as it was.
    """

    def __init__(
        self, path: Path, schema: DatasetSchema, fps: int, *, description: Mapping[str, Any] | None = None
    ) -> None:
        self._path, self._schema, self._fps = Path(path), schema, fps
        self._description = dict(description or {})
        check_schema(schema, fps)
        check_path(self._path)
        self._root, self._lock = open_workspace(self._path)
        self._videos = {camera.key: VideoSeries(self._root, camera, fps) for camera in schema.cameras}
        self._data = DataSeries(self._root)
        self._histograms = {camera.key: ImageHistogram() for camera in schema.cameras}
        self._columns: dict[str, list[np.ndarray]] = {}
        self._tasks: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []
        self._episode: _OpenEpisode | None = None
        self._closed = False

    @property
    def episodes(self) -> int:
        """Closed episodes."""
        return len(self._rows)

    @property
    def frames(self) -> int:
        """Frames of the closed episodes."""
        return self._rows[-1]["dataset_to_index"] if self._rows else 0

    def start_episode(self, task: str) -> None:
        """Begin an episode, as every reset must: the open one is closed first, and is an error if it has no frame."""
        self._check_not_closed()
        check_task(task)
        if self._episode is not None:
            self.end_episode()
        for video in self._videos.values():
            video.begin_episode()
        self._episode = _OpenEpisode(task, self._schema)

    def add(self, images: Mapping[str, np.ndarray], state_S: np.ndarray | None, action_A: np.ndarray) -> None:
        """Append what was seen (uint8 [H, W, 3] by camera key, float32 [S]) and the action (float32 [A]) taken."""
        episode = self._open_episode("add")
        check_frame(self._schema, images, state_S, action_A)
        for key, video in self._videos.items():
            video.file.add(images[key])
            episode.histograms[key].add(images[key])
        if state_S is not None:
            episode.states.append(state_S.copy())
        episode.actions.append(action_A.copy())

    def end_episode(self) -> None:
        """Close the open episode: its rows are written, its statistics computed."""
        episode, index, first = self._open_episode("end_episode"), self.episodes, self.frames
        if not episode.actions:
            raise EmptyEpisode(f"episode {index} has no frame: a reset was followed by another reset or by the end")
        task_index = self._tasks.setdefault(episode.task, len(self._tasks))
        columns = episode.columns(self._schema, self._fps, index=index, first=first, task_index=task_index)
        row = {
            "episode_index": index,
            "tasks": [episode.task],
            "length": len(episode.actions),
            "dataset_from_index": first,
            "dataset_to_index": first + len(episode.actions),
            **self._data.add_episode(_table(columns)),
        }
        for video in self._videos.values():
            row |= video.columns()
        self._rows.append(row | statistics_columns(_summaries(columns, episode.histograms)))
        for key, values in columns.items():
            self._columns.setdefault(key, []).append(values)
        for key, histogram in episode.histograms.items():
            self._histograms[key].merge(histogram)
        self._episode = None

    def close(self) -> Path:
        """End the open episode, write the metadata, flush, and rename into place. Returns the dataset's path."""
        self._check_not_closed()
        if self._episode is not None:
            self.end_episode()
        if not self._rows:
            raise EmptyRecording("no episode was recorded")
        for video in self._videos.values():
            video.file.close()
        self._data.close()
        write_metadata(
            self._root,
            schema=self._schema,
            fps=self._fps,
            tasks=list(self._tasks),
            episodes=self._rows,
            summaries=_summaries({key: np.concatenate(v) for key, v in self._columns.items()}, self._histograms),
            description=self._description,
        )
        check_path(self._path)
        publish(self._root, self._path)
        self._closed = True
        os.close(self._lock)
        return self._path

    def abort(self) -> None:
        """Throw the recording away; nothing is left behind. After ``close`` it does nothing."""
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:  # a file that cannot be finished must not keep the folder alive
            stack.callback(os.close, self._lock)
            stack.callback(shutil.rmtree, self._root, ignore_errors=True)
            for release in (self._data.close, *(video.file.abort for video in self._videos.values())):
                with contextlib.suppress(OSError, ValueError):
                    release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None and not self._closed:
                self.close()
        finally:
            self.abort()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise RecordingClosed(f"the recording {self._path} is closed")

    def _open_episode(self, call: str) -> _OpenEpisode:
        self._check_not_closed()
        if self._episode is None:
            raise NoOpenEpisode(f"{call}() before start_episode(): no episode is open")
        return self._episode


def _table(columns: _Columns) -> pa.Table:
    """Vectors as fixed-size lists of float32, bookkeeping columns as numbers."""
    return pa.table(
        {
            key: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            if values.ndim == 2
            else pa.array(values)
            for key, values in columns.items()
        }
    )


def _summaries(columns: _Columns, histograms: Mapping[str, ImageHistogram]) -> dict[str, Summary]:
    summaries = {key: vector_summary(values) for key, values in columns.items()}
    return summaries | {key: histogram.summary() for key, histogram in histograms.items()}
