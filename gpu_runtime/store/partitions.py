"""Payloads of training jobs: one safetensors file per partition, byte-accounted, gone in every terminal state."""

import re
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gpu_runtime.store.errors import DiskFull, PartitionsFull, PartitionUnreadable, file_error
from gpu_runtime.store.files import free_bytes, sync_folder, write_atomic

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_SUFFIX = ".safetensors"


class PartitionStore:
    """Safe to use from several threads; a partition is written once and read by its lease holder.

    ``root``: folder of the files, made if absent. ``max_bytes``: limit on all live partitions together.
    ``min_free_bytes``: what must stay free on the file system after a write.
    """

    def __init__(self, root: Path, max_bytes: int, min_free_bytes: int = 0) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._lock = threading.Lock()
        root.mkdir(parents=True, exist_ok=True)
        self._sizes = {path.name.removesuffix(_SUFFIX): path.stat().st_size for path in root.glob(f"*{_SUFFIX}")}

    @property
    def live_bytes(self) -> int:
        """Bytes of every partition that has not been cleared."""
        with self._lock:
            return sum(self._sizes.values())

    def put(self, partition_id: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> int:
        """Write one partition durably; returns its size in bytes.

        Raises PartitionsFull over ``max_bytes``, DiskFull when the disk has no room, ValueError for a bad or used id.
        """
        path = self._path(partition_id)
        data = save({name: np.ascontiguousarray(array) for name, array in tensors.items()}, dict(metadata))
        self._book(partition_id, len(data))
        try:
            self._check_disk(len(data))
            write_atomic(path, data)
        except BaseException as error:
            with self._lock:
                del self._sizes[partition_id]
            if isinstance(error, OSError):
                raise file_error(error, f"partition {partition_id}") from error
            raise
        return len(data)

    def open(self, partition_id: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """Map one partition: (arrays by name, metadata). Raises PartitionUnreadable."""
        try:
            with safe_open(self._path(partition_id), framework="np") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise PartitionUnreadable(f"partition {partition_id}: {error}") from error

    def clear(self, partition_id: str) -> None:
        """Return the partition's bytes. Clearing one that is gone already is no error."""
        self._path(partition_id).unlink(missing_ok=True)
        with self._lock:
            self._sizes.pop(partition_id, None)

    def sweep(self, known_ids: Collection[str]) -> list[str]:
        """Remove every file that belongs to none of ``known_ids``, half-written ones too; returns their names."""
        keep = {f"{partition_id}{_SUFFIX}" for partition_id in known_ids}
        removed = [path for path in self._root.iterdir() if path.is_file() and path.name not in keep]
        for path in removed:
            path.unlink(missing_ok=True)
            with self._lock:
                self._sizes.pop(path.name.removesuffix(_SUFFIX), None)
        sync_folder(self._root)
        return sorted(path.name for path in removed)

    def _path(self, partition_id: str) -> Path:
        if not _ID.fullmatch(partition_id):
            raise ValueError(
                f"partition id {partition_id!r}: allowed are letters, digits, '.', '_' and '-', at most 200"
            )
        return self._root / f"{partition_id}{_SUFFIX}"

    def _book(self, partition_id: str, size: int) -> None:
        """Count the bytes before writing them, so that two writers cannot pass the limit together."""
        with self._lock:
            if partition_id in self._sizes:
                raise ValueError(f"partition {partition_id} is already stored")
            total = sum(self._sizes.values())
            if total + size > self._max_bytes:
                raise PartitionsFull(f"{size} bytes beside {total} live ones pass the limit of {self._max_bytes}")
            self._sizes[partition_id] = size

    def _check_disk(self, size: int) -> None:
        free = free_bytes(self._root)
        if free - size < self._min_free_bytes:
            raise DiskFull(f"partition of {size} bytes: {free} bytes free, {self._min_free_bytes} must stay free")
