"""A job's door to the stored features of its dataset, and the rows taken for its next partitions ahead of the device.

A frozen feature of a recorded frame never changes. What the job trains on is always what the store gives back, found
or just put in: so its results depend neither on hits nor on evictions nor on who filled the store.
"""

import threading
from collections.abc import Sequence
from typing import Protocol

from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Rows


class StoredFeatures(Protocol):
    """Entries of one dataset; ``features.store.DatasetFeatures`` is one. Thread-safe."""

    dataset: str

    def take(self, keys: Sequence[FrameKey]) -> Sequence[Rows | None]: ...

    def missing(self, keys: Sequence[FrameKey]) -> int: ...

    def put(self, key: FrameKey, rows: Rows, /) -> Rows: ...


class StagingRoom:
    """Bytes that rows waiting for their partition may take, of all jobs together. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._lock = max_bytes, threading.Lock()
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Book so many bytes; False, and nothing is booked, when there is no room for them."""
        with self._lock:
            if self.bytes + size > self._max_bytes:
                return False
            self.bytes += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.bytes -= size


class FrameRows:
    """Stored rows of one job's frames. Reader threads stage, the compute thread takes, the event loop drops."""

    def __init__(self, view: StoredFeatures, source: SampleSource, prefix: str, room: StagingRoom) -> None:
        """``prefix``: hash of the policy's prefix signature on its base."""
        self._view, self._source, self._prefix, self._room = view, source, prefix, room
        self._lock = threading.Lock()
        self._staged: dict[str, dict[FrameKey, Rows]] = {}  # by partition
        self._closed = False

    @property
    def dataset(self) -> str:
        """The name of the dataset version in keys."""
        return self._view.dataset

    @property
    def source(self) -> SampleSource:
        """Where a frame's images can be read (again)."""
        return self._source

    @property
    def staged_partitions(self) -> int:
        return len(self._staged)

    def keys(self, refs: Sequence[FrameRef]) -> list[FrameKey]:
        """Names of the frames' features. Without cameras a frame is its words: all frames with the same ones agree."""
        refs_named = refs if self._source.cameras else [FrameRef(0, 0)] * len(refs)
        return [
            FrameKey(
                dataset=self.dataset,
                episode=named.episode,
                frame=named.frame,
                prefix=self._prefix,
                instruction=self._source.instruction(ref),
            )
            for named, ref in zip(refs_named, refs, strict=True)
        ]

    def missing(self, keys: Sequence[FrameKey]) -> int:
        """Distinct frames that have no stored features now. Reads no file."""
        return self._view.missing(list(dict.fromkeys(keys)))

    def stage(self, partition_id: str, keys: Sequence[FrameKey]) -> list[int]:
        """Take what is stored for a partition, as far as there is room; positions of the others. Blocks on files."""
        wanted = [key for key in dict.fromkeys(keys) if not self._view.missing([key])]
        taken: dict[FrameKey, Rows] = {}
        for key, rows in zip(wanted, self._view.take(wanted), strict=True):
            if rows is not None and self._room.take(_bytes({key: rows})):
                taken[key] = rows
        with self._lock:
            if not self._closed:
                self._staged[partition_id] = taken
                return [place for place, key in enumerate(keys) if key not in taken]
        self._room.give_back(_bytes(taken))
        return list(range(len(keys)))

    def known(self, partition_id: str, keys: Sequence[FrameKey]) -> dict[FrameKey, Rows]:
        """What needs no forward: staged rows, and what others have put in since. Blocks on files for the latter."""
        with self._lock:
            known = dict(self._staged.get(partition_id, {}))
        rest = [key for key in dict.fromkeys(keys) if key not in known]
        found = zip(rest, self._view.take(rest), strict=True)
        return known | {key: rows for key, rows in found if rows is not None}

    def put(self, key: FrameKey, rows: Rows) -> Rows:
        """Keep computed features; returns them as they will be found."""
        return self._view.put(key, rows)

    def drop(self, partition_id: str) -> None:
        """A partition has ended: nothing is held for it any more. A second time does nothing."""
        with self._lock:
            dropped = self._staged.pop(partition_id, {})
        self._room.give_back(_bytes(dropped))

    def close(self) -> None:
        """The job has ended: drop everything and stage nothing from here on. A second time does nothing."""
        with self._lock:
            self._closed = True
            partitions = list(self._staged)
        for partition_id in partitions:
            self.drop(partition_id)


def _bytes(rows: dict[FrameKey, Rows]) -> int:
    return sum(value.nbytes for taps in rows.values() for value in taps.values())
