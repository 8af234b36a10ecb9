"""One flat file of entries of one dataset: appended to, then sealed with an index, read by ``preadv``."""

import json
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import DTYPES, Entry, Part

INDEX_FORMAT = 3
DATA, INDEX = ".features", ".index.json"
_VECTORS_MAX = 512  # buffers of one preadv; Linux allows 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """One entry in a file. ``crc`` is zlib's CRC-32 of its bytes: a torn or damaged entry is a miss."""

    offset: int
    size: int
    crc: int
    parts: tuple[Part, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Segment:
    """An open file. ``readers`` keep it open after it was dropped."""

    dataset: str
    path: Path  # of the data; the index lies beside it
    file: int  # descriptor
    size: int = 0
    index_size: int = 0
    extents: dict[FrameKey, Extent] = field(default_factory=dict)
    sealed: bool = False
    readers: int = 0
    dropped: bool = False
    used: int = 0  # the store's tick of the last use

    @classmethod
    def create(cls, folder: Path, dataset: str, number: int) -> "Segment":
        """A new, empty file. Raises OSError."""
        path = folder / f"{number:08d}{DATA}"
        return cls(dataset=dataset, path=path, file=os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    @property
    def footprint(self) -> int:
        """Bytes on disk, the index included."""
        return self.size + self.index_size

    def append(self, key: FrameKey, entry: Entry) -> None:
        """Write one entry at the end. Raises OSError; the file is then as long as before."""
        view = entry.block.numpy().data
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(self.file, view[done:], self.size + done)
        except OSError:
            os.ftruncate(self.file, self.size)
            raise
        self.extents[key] = Extent(offset=self.size, size=entry.size, crc=zlib.crc32(view), parts=entry.parts)
        self.size += entry.size

    def read(self, wanted: Sequence[tuple[FrameKey, Extent]], *, pinned: bool) -> dict[FrameKey, Entry]:
        """Those entries that are whole, in one buffer; neighbours are one system call. Raises OSError."""
        ordered = sorted(wanted, key=lambda item: item[1].offset)
        buffer = torch.empty(sum(extent.size for _, extent in ordered), dtype=torch.uint8, pin_memory=pinned)
        view, start = buffer.numpy().data, 0
        blocks: list[tuple[FrameKey, Extent, int]] = []
        for key, extent in ordered:
            blocks.append((key, extent, start))
            start += extent.size
        for run in _runs(blocks):
            first, last = run[0], run[-1]
            vectors = [view[place : place + extent.size] for _, extent, place in run]
            expected = last[1].offset + last[1].size - first[1].offset
            if os.preadv(self.file, vectors, first[1].offset) != expected:
                continue  # cut short: the checksums below find out which entries are whole
        return {
            key: Entry(block=buffer[place : place + extent.size], parts=extent.parts)
            for key, extent, place in blocks
            if zlib.crc32(view[place : place + extent.size]) == extent.crc
        }

    def seal(self, dtype: str, *, room: int) -> bool:
        """Write the index, if that takes no more than ``room`` bytes. Raises OSError.

        Nothing waits for the disk: what a power cut tears fails a checksum, the index's or an entry's, and is a miss.
        """
        document = {
            "format": INDEX_FORMAT,
            "dtype": dtype,
            "dataset": self.dataset,
            "size": self.size,
            "entries": [[_key_fields(key), asdict(extent)] for key, extent in self.extents.items()],
        }
        body = json.dumps(document).encode()
        text = b"%08x\n%b" % (zlib.crc32(body), body)
        if len(text) > room:
            return False
        temporary = self._index_path().with_suffix(".tmp")
        try:
            temporary.write_bytes(text)
            temporary.rename(self._index_path())
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self.index_size, self.sealed = len(text), True
        return True

    def unlink(self) -> None:
        """Take the names away, index first: data without an index are never read."""
        self._index_path().unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self.file)

    def _index_path(self) -> Path:
        return self.path.with_name(self.path.name.removesuffix(DATA) + INDEX)


def open_sealed(index: Path, dtype: str) -> Segment | None:
    """A segment of an earlier process; None when its index or its data are not what they should be."""
    path = index.with_name(index.name.removesuffix(INDEX) + DATA)
    try:
        text = index.read_bytes()
        crc, _, body = text.partition(b"\n")
        if int(crc, 16) != zlib.crc32(body):  # a damaged index could name another frame's rows
            return None
        document = json.loads(body)
        if (document["format"], document["dtype"]) != (INDEX_FORMAT, dtype):
            return None
        extents = {
            FrameKey(dataset=document["dataset"], **key): _extent(extent) for key, extent in document["entries"]
        }
        if path.stat().st_size != document["size"] or any(
            e.offset + e.size > document["size"] for e in extents.values()
        ):
            return None
        file = os.open(path, os.O_RDWR)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Segment(
        dataset=document["dataset"],
        path=path,
        file=file,
        size=document["size"],
        index_size=len(text),
        extents=extents,
        sealed=True,
    )


def _key_fields(key: FrameKey) -> dict[str, Any]:
    return {name: value for name, value in asdict(key).items() if name != "dataset"}


def _extent(raw: dict[str, Any]) -> Extent:
    """Raises TypeError, KeyError or ValueError for fields that are not an extent's."""
    extent = Extent(**raw | {"parts": tuple(Part(**part) for part in raw["parts"])})
    if extent.offset < 0 or any(
        part.dtype not in DTYPES
        or part.start < 0
        or (part.fine_start is not None and part.fine_start < part.start + part.size)
        or part.end > extent.size
        for part in extent.parts
    ):
        raise ValueError("extent")
    return extent


def _runs(blocks: Iterable[tuple[FrameKey, Extent, int]]) -> list[list[tuple[FrameKey, Extent, int]]]:
    """Neighbours in the file together."""
    runs: list[list[tuple[FrameKey, Extent, int]]] = []
    for block in blocks:
        if runs and len(runs[-1]) < _VECTORS_MAX and block[1].offset == runs[-1][-1][1].offset + runs[-1][-1][1].size:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs
