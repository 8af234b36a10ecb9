"""All segments of all datasets: one limit in bytes, eviction, deletion, and taking up what was sealed before."""

import logging
import shutil
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Entry
from gpu_runtime.features.segment import INDEX, Extent, Segment, open_sealed

SEGMENT_BYTES = 64 * 2**20
_SEGMENTS_AT_LEAST = 8  # a small limit has small segments, so that eviction takes an eighth at most
_log = logging.getLogger(__name__)


class FileTier:
    """Bounded in bytes on disk. A disk that fails switches it off and nothing else. Thread-safe."""

    def __init__(self, folder: Path, max_bytes: int, *, dtype: str, min_free_bytes: int = 0) -> None:
        """Raises OSError for a folder that cannot be made."""
        self.max_bytes = max_bytes
        self.problem: str | None = None
        self._folder, self._dtype, self._min_free_bytes = folder, dtype, min_free_bytes
        self._segment_bytes = min(SEGMENT_BYTES, max(1, max_bytes // _SEGMENTS_AT_LEAST))
        self._lock = threading.Lock()
        self._segments: dict[str, list[Segment]] = defaultdict(list)  # by dataset; the last one may be open to append
        self._where: dict[FrameKey, Segment] = {}
        self._bytes = self._tick = self._number = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._take_up()

    @property
    def bytes(self) -> int:
        """Bytes on disk, indexes and dropped files that are still being read included."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._where)

    @property
    def datasets(self) -> set[str]:
        """Names of the datasets that hold something."""
        with self._lock:
            return set(self._segments)

    def has(self, key: FrameKey) -> bool:
        return key in self._where

    def put(self, key: FrameKey, entry: Entry) -> None:
        """Append the entry if there is room or room can be made; else it is simply not kept."""
        with self._lock:
            if self.problem is not None or key in self._where:
                return
            try:
                segment = self._open_for(key.dataset, entry.size)
                if segment is not None:
                    segment.append(key, entry)
                    self._bytes += entry.size
                    self._where[key] = segment
                    self._touch(segment)
            except OSError as error:
                self._give_up(error)

    def read(self, keys: Sequence[FrameKey], *, pinned: bool = False) -> dict[FrameKey, Entry]:
        """The entries that are here and whole. Files are read without the lock."""
        by_segment: dict[Segment, list[tuple[FrameKey, Extent]]] = defaultdict(list)
        with self._lock:
            for key in keys:
                if (at := self._where.get(key)) is not None:
                    by_segment[at].append((key, at.extents[key]))
            for segment in by_segment:
                segment.readers += 1
                self._touch(segment)
        found: dict[FrameKey, Entry] = {}
        for segment, wanted in by_segment.items():
            try:
                whole = segment.read(wanted, pinned=pinned)
            except OSError as error:
                _log.warning("a feature file cannot be read: %s", error)
                whole = {}
            found |= whole
            self._done(segment, damaged=[key for key, _ in wanted if key not in whole])
        return found

    def forget(self, dataset: str) -> int:
        """Remove every file of a dataset and return their bytes; reads under way end with what they have."""
        with self._lock:
            segments = self._segments.pop(dataset, [])
            freed = sum(segment.footprint for segment in segments)
            for segment in segments:
                self._drop(segment)
        return freed

    def close(self) -> None:
        """Seal what is open, for the next process. Nothing may be called after it."""
        with self._lock:
            for segments in self._segments.values():
                for segment in segments:
                    self._seal(segment)
                    segment.close()
            self._segments.clear()
            self._where.clear()

    def _take_up(self) -> None:
        """Sealed segments of an earlier process within the limit; everything else in the folder goes."""
        kept: set[Path] = set()
        for index in sorted(self._folder.glob(f"{'[0-9]' * 8}{INDEX}")):
            segment = open_sealed(index, self._dtype)
            if segment is None:
                continue
            if self._bytes + segment.footprint > self.max_bytes:
                segment.close()
                continue
            self._segments[segment.dataset].append(segment)
            self._where.update(dict.fromkeys(segment.extents, segment))
            self._bytes += segment.footprint
            self._number = max(self._number, int(segment.path.name.split(".")[0]))
            kept |= {index, segment.path}
        for path in self._folder.iterdir():
            if path not in kept and path.is_file():
                path.unlink()

    def _open_for(self, dataset: str, size: int) -> Segment | None:
        """A segment with room for ``size`` bytes, after making room on disk; None when there is none to be made."""
        if size > self.max_bytes or not self._make_room(size):
            return None
        segments = self._segments.get(dataset, [])
        if segments and not segments[-1].sealed:
            if segments[-1].size + size <= self._segment_bytes or not segments[-1].size:
                return segments[-1]
            self._seal(segments[-1])
            if not self._make_room(size):  # the index took some
                return None
        if shutil.disk_usage(self._folder).free - size < self._min_free_bytes:
            return None
        self._number += 1
        segment = Segment.create(self._folder, dataset, self._number)
        self._segments[dataset].append(segment)
        return segment

    def _make_room(self, size: int) -> bool:
        """Drop segments of whoever holds most, its least recently used first, until ``size`` bytes fit."""
        while self._bytes + size > self.max_bytes:
            held = {name: sum(s.footprint for s in own) for name, own in self._segments.items()}
            candidates = [s for own in self._segments.values() for s in own if not s.readers]
            if not candidates:
                return False
            victim = min(candidates, key=lambda segment: (-held[segment.dataset], segment.used))
            self._segments[victim.dataset].remove(victim)
            if not self._segments[victim.dataset]:
                del self._segments[victim.dataset]
            self._drop(victim)
        return True

    def _drop(self, segment: Segment) -> None:
        """Unlink at once; the bytes come back when the last reader has left."""
        segment.dropped = True
        for key in segment.extents:
            if self._where.get(key) is segment:
                del self._where[key]
        try:
            segment.unlink()
        except OSError as error:  # the others of a dataset go all the same
            self._give_up(error)
        if not segment.readers:
            self._release(segment)

    def _release(self, segment: Segment) -> None:
        segment.close()
        self._bytes -= segment.footprint

    def _done(self, segment: Segment, *, damaged: Sequence[FrameKey]) -> None:
        with self._lock:
            segment.readers -= 1
            for key in damaged:
                segment.extents.pop(key, None)
                if self._where.get(key) is segment:
                    del self._where[key]
            if segment.dropped and not segment.readers:
                self._release(segment)

    def _seal(self, segment: Segment) -> None:
        """Write the index where there is room for it; without one the segment serves this process only."""
        if segment.sealed or self.problem is not None:
            return
        try:
            if segment.seal(self._dtype, room=self.max_bytes - self._bytes):
                self._bytes += segment.index_size
            else:
                segment.sealed = True
        except OSError as error:
            self._give_up(error)

    def _touch(self, segment: Segment) -> None:
        self._tick += 1
        segment.used = self._tick

    def _give_up(self, error: OSError) -> None:
        """Go on without writing; what is on disk can still be read."""
        self.problem = f"feature files: {error}"
        _log.error("no further features are written to %s: %s", self._folder, error)
