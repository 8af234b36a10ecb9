"""Features of frozen bases, kept: a demonstration's frame goes through the backbone once.

Memory in front of flat files. Whoever trains through the store sees what the store gives back, rounded once, whether
it was found or has just been computed: hits, evictions and other tenants never change a result.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gpu_runtime.features.files import FileTier
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.ram import RamTier
from gpu_runtime.features.rows import DTYPES, Entry, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """Counts since the start, bytes at the moment."""

    hits: int
    misses: int
    ram_bytes: int
    file_bytes: int
    entries: int
    evicted: int  # from memory; a file may still have them
    overflowed: int  # kept in single precision because half would have overflowed
    problem: str | None  # why nothing is written to files any more


class FeatureStore:
    """Bounded in bytes in memory and on disk. Thread-safe; disk reads hold no lock."""

    def __init__(
        self,
        folder: Path | None,
        *,
        ram_bytes: int,
        file_bytes: int,
        dtype: str = "float16",
        device: torch.device | str = "cpu",
        min_free_bytes: int = 0,
    ) -> None:
        """``folder`` None or ``file_bytes`` 0: memory only. Rows are handed out on ``device``.

        Raises ValueError naming the setting, its value and what is allowed.
        """
        if dtype not in DTYPES:
            raise ValueError(f"dtype: {dtype!r}, allowed: {', '.join(sorted(DTYPES))}")
        for name, value in (("ram_bytes", ram_bytes), ("file_bytes", file_bytes)):
            if value < 0:
                raise ValueError(f"{name}: {value}, allowed: 0 (keep nothing) or more")
        self._dtype, self._device = DTYPES[dtype], torch.device(device)
        self._ram = RamTier(ram_bytes)
        self._problem: str | None = None
        self._files = self._open_files(folder, file_bytes, dtype, min_free_bytes)
        self._lock = threading.Lock()
        self._forgotten: set[str] = set()  # names of datasets, and ids of versions
        self._hits = self._misses = self._evicted = self._overflowed = 0

    def open(self, dataset: str) -> "DatasetFeatures":
        """The only door to a dataset's entries, for a job whose tenant was found to be allowed to read it."""
        return DatasetFeatures(self, dataset)

    def forget(self, dataset: str) -> int:
        """Drop everything of a deleted dataset and return its bytes; doors still open find and keep nothing."""
        with self._lock:
            self._forgotten.add(dataset)
            freed = self._ram.forget(dataset)
            return freed + (0 if self._files is None else self._files.forget(dataset))

    def forget_version(self, version_id: str) -> int:
        """``forget`` for every state of a dataset version's files, those that hold nothing yet included."""
        with self._lock:
            self._forgotten.add(version_id)
            names = {name for name in self._names() if name.rpartition("@")[0] == version_id}
        return sum(self.forget(name) for name in names)

    def versions(self) -> frozenset[str]:
        """Ids of the dataset versions of which something is kept."""
        with self._lock:
            return frozenset(name.rpartition("@")[0] for name in self._names())

    def status(self) -> StoreStatus:
        with self._lock:
            files = self._files
            return StoreStatus(
                hits=self._hits,
                misses=self._misses,
                ram_bytes=self._ram.bytes,
                file_bytes=0 if files is None else files.bytes,
                entries=len(self._ram) if files is None else max(len(self._ram), len(files)),
                evicted=self._evicted,
                overflowed=self._overflowed,
                problem=self._problem or (None if files is None else files.problem),
            )

    def close(self) -> None:
        """Seal the files, so that the next process takes them up."""
        with self._lock:
            if self._files is not None:
                self._files.close()
                self._files = None

    def holds(self, key: FrameKey) -> bool:
        """True when the entry is in memory or in a file. Reads nothing and counts nothing."""
        with self._lock:
            return key in self._ram or (self._files is not None and self._files.has(key))

    def take(self, keys: Sequence[FrameKey]) -> list[Rows | None]:
        """Rows of what is kept, None of what is not. Counts hits and misses."""
        found = self._find(keys)
        with self._lock:
            hits = sum(key in found for key in keys)
            self._hits, self._misses = self._hits + hits, self._misses + len(keys) - hits
        return [found[key].rows(self._device) if key in found else None for key in keys]

    def _find(self, keys: Sequence[FrameKey]) -> dict[FrameKey, Entry]:
        """What is kept of the keys; entries that came from a file are now in memory as well. Counts nothing."""
        with self._lock:
            found = {key: entry for key in dict.fromkeys(keys) if (entry := self._ram.get(key)) is not None}
            files = self._files
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        if missing and files is not None:
            read = files.read(missing, pinned=self._device.type == "cuda")
            found |= read
            with self._lock:
                for key, entry in read.items():
                    self._keep_in_memory(key, entry)
        return found

    def put(self, key: FrameKey, rows: Rows) -> Rows:
        """Keep the rows of one frame if there is room; returns what a later ``take`` would."""
        entry, found = Entry.of(rows, self._dtype)
        with self._lock:
            if not self._is_forgotten(key.dataset):
                self._overflowed += int(entry.overflowed and self._dtype is torch.float16)
                self._keep_in_memory(key, entry)
                if self._files is not None:
                    self._files.put(key, entry)
        return {tap: value_LD.to(self._device) for tap, value_LD in found.items()}

    def _keep_in_memory(self, key: FrameKey, entry: Entry) -> None:
        """With a block of the entry's own: one that was read shares a buffer with its neighbours."""
        if not self._is_forgotten(key.dataset) and entry.size <= self._ram.max_bytes:
            self._evicted += self._ram.put(key, entry.alone())

    def _is_forgotten(self, dataset: str) -> bool:
        return dataset in self._forgotten or dataset.rpartition("@")[0] in self._forgotten

    def _names(self) -> set[str]:
        return self._ram.datasets | (set() if self._files is None else self._files.datasets)

    def _open_files(self, folder: Path | None, file_bytes: int, dtype: str, min_free_bytes: int) -> FileTier | None:
        if folder is None or not file_bytes:
            return None
        try:
            return FileTier(folder, file_bytes, dtype=dtype, min_free_bytes=min_free_bytes)
        except OSError as error:  # a store without files is slower, not wrong
            self._problem = f"feature files: {error}"
            return None


class DatasetFeatures:
    """One dataset's entries. Raises ValueError for a key of another dataset."""

    def __init__(self, store: FeatureStore, dataset: str) -> None:
        self._store, self.dataset = store, dataset

    def take(self, keys: Sequence[FrameKey]) -> list[Rows | None]:
        """See ``FeatureStore.take``."""
        self._check(keys)
        return self._store.take(keys)

    def missing(self, keys: Sequence[FrameKey]) -> int:
        """How many of the keys are not kept; reads nothing and counts nothing."""
        self._check(keys)
        return sum(not self._store.holds(key) for key in keys)

    def put(self, key: FrameKey, rows: Rows) -> Rows:
        """See ``FeatureStore.put``."""
        self._check([key])
        return self._store.put(key, rows)

    def _check(self, keys: Sequence[FrameKey]) -> None:
        for key in keys:
            if key.dataset != self.dataset:
                raise ValueError(f"dataset: {key.dataset!r}, allowed: {self.dataset!r}, which this was opened for")
