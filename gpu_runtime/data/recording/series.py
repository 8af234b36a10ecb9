"""Numbered files that hold many episodes each: a new file is begun between episodes when the last has grown large."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_runtime.data.recording.video import VideoFile
from gpu_runtime.protocol.schema import Camera

CHUNKS_SIZE = 1000
DATA_FILE_MB_MAX = 100
VIDEO_FILE_MB_MAX = 200
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_MB = 10**6


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Which file of a series: at most ``CHUNKS_SIZE`` files in a chunk."""

    chunk_index: int = 0
    file_index: int = 0

    def next(self) -> "FilePlace":
        if self.file_index + 1 < CHUNKS_SIZE:
            return FilePlace(self.chunk_index, self.file_index + 1)
        return FilePlace(self.chunk_index + 1, 0)

    def fill(self, template: str, **values: str) -> str:
        return template.format(chunk_index=self.chunk_index, file_index=self.file_index, **values)


class VideoSeries:
    """The video files of one camera."""

    def __init__(self, root: Path, camera: Camera, fps: int, *, bytes_max: int = VIDEO_FILE_MB_MAX * _MB) -> None:
        self._root, self._camera, self._fps, self._bytes_max = root, camera, fps, bytes_max
        self._place = FilePlace()
        self.file = self._open()
        self._first_frame = 0  # of the open episode, in the current file

    def _open(self) -> VideoFile:
        path = self._root / self._place.fill(VIDEO_PATH, video_key=self._camera.key)
        return VideoFile(path, self._camera, self._fps)

    def begin_episode(self) -> None:
        if self.file.frames and self.file.size_bytes >= self._bytes_max:
            self.file.close()
            self._place = self._place.next()
            self.file = self._open()
        self._first_frame = self.file.frames

    def columns(self) -> Mapping[str, Any]:
        """Where the open episode is; frame ``i`` of it is at ``from_timestamp + i / fps`` seconds."""
        prefix = f"videos/{self._camera.key}"
        return {
            f"{prefix}/chunk_index": self._place.chunk_index,
            f"{prefix}/file_index": self._place.file_index,
            f"{prefix}/from_timestamp": self._first_frame / self._fps,
            f"{prefix}/to_timestamp": self.file.frames / self._fps,
        }


class DataSeries:
    """The parquet files of vectors and bookkeeping numbers; one row group per episode."""

    def __init__(self, root: Path, *, bytes_max: int = DATA_FILE_MB_MAX * _MB) -> None:
        self._root, self._bytes_max = root, bytes_max
        self._place = FilePlace()
        self._writer: pq.ParquetWriter | None = None

    @property
    def _path(self) -> Path:
        return self._root / self._place.fill(DATA_PATH)

    def add_episode(self, table: pa.Table) -> Mapping[str, Any]:
        """Append one episode's rows; returns where they are."""
        if self._writer is not None and self._path.stat().st_size >= self._bytes_max:
            self.close()
            self._place = self._place.next()
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)
        return {"data/chunk_index": self._place.chunk_index, "data/file_index": self._place.file_index}

    def close(self) -> None:
        """Write the current file's footer."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
