"""Entries in memory, least recently used first out; room comes from the dataset that holds most."""

from collections import OrderedDict

from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Entry


class RamTier:
    """Bounded in bytes. Not thread-safe: the store's lock is around it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._kept: dict[str, OrderedDict[FrameKey, Entry]] = {}  # by dataset
        self._bytes: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._kept.values())

    def __contains__(self, key: FrameKey) -> bool:
        return key in self._kept.get(key.dataset, ())

    @property
    def datasets(self) -> set[str]:
        """Names of the datasets that hold something."""
        return set(self._kept)

    def get(self, key: FrameKey) -> Entry | None:
        """The entry, which is now the most recently used one of its dataset."""
        entries = self._kept.get(key.dataset)
        if entries is None or key not in entries:
            return None
        entries.move_to_end(key)
        return entries[key]

    def put(self, key: FrameKey, entry: Entry) -> int:
        """Keep the entry if it fits at all; returns how many others had to go. Room is made before it is used."""
        if entry.size > self.max_bytes or key in self:
            return 0
        evicted = 0
        while self.bytes + entry.size > self.max_bytes:
            self._drop_oldest(max(self._bytes, key=self._bytes.__getitem__))
            evicted += 1
        self._kept.setdefault(key.dataset, OrderedDict())[key] = entry
        self._bytes[key.dataset] = self._bytes.get(key.dataset, 0) + entry.size
        self.bytes += entry.size
        return evicted

    def forget(self, dataset: str) -> int:
        """Drop everything of a dataset; returns its bytes."""
        self._kept.pop(dataset, None)
        freed = self._bytes.pop(dataset, 0)
        self.bytes -= freed
        return freed

    def _drop_oldest(self, dataset: str) -> None:
        _, entry = self._kept[dataset].popitem(last=False)
        self.bytes -= entry.size
        self._bytes[dataset] -= entry.size
        if not self._kept[dataset]:
            del self._kept[dataset], self._bytes[dataset]
