"""A picture that was seen goes through the vision tower once: in one forward, and within its scope across calls.

A vision tower looks at one picture at a time, so its rows depend on nothing else. Across calls pictures are known by
their bytes and only to the scope (a tenant) that showed them: another one's time tells it nothing.

Shapes: P patches, D width of the vision tower.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch

from gpu_runtime.batching.layout import ImageGrid

_DIGEST_BYTES = 20
_PROBE_STEP = 16
"""Pixels between those that are compared before whole pictures are: hashing all would cost 4 % of a small tower."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VisionOutputs:
    """Patch tokens after the last block, and after each block that deepstack reads."""

    last_PD: torch.Tensor
    deepstack: tuple[torch.Tensor, ...]

    @property
    def bytes_held(self) -> int:
        return sum(part.numel() * part.element_size() for part in (self.last_PD, *self.deepstack))

    def rows(self, start: int, count: int) -> "VisionOutputs":
        """Consecutive rows, as views."""
        return VisionOutputs(
            last_PD=self.last_PD[start : start + count],
            deepstack=tuple(part[start : start + count] for part in self.deepstack),
        )

    def own(self) -> "VisionOutputs":
        """The same in memory of its own."""
        return VisionOutputs(last_PD=self.last_PD.clone(), deepstack=tuple(part.clone() for part in self.deepstack))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseCounts:
    """Different pictures of a call's scoped samples that an earlier one had shown, and others; bytes kept now."""

    hits: int
    misses: int
    live_bytes: int


Run = Callable[[Sequence[np.ndarray], Sequence[ImageGrid], bool], VisionOutputs]


class VisionReuse:
    """Bounded in bytes, on the device. Room comes from the scope that holds most, its least recently used first.

    Thread-safe. With 0 bytes nothing outlives its forward, and without ``dedup`` every picture without a scope is
    seen as a new one. Raises ValueError for a negative bound.
    """

    def __init__(self, max_bytes: int, *, dedup: bool = True) -> None:
        if max_bytes < 0:
            raise ValueError(f"vision_cache_bytes: {max_bytes}, allowed: 0 (keep nothing) or more")
        self._max_bytes, self._dedup = max_bytes, dedup
        self._lock = Lock()
        self._kept: dict[str, OrderedDict[Hashable, VisionOutputs]] = {}  # by scope
        self._bytes: dict[str, int] = {}
        self._hits = self._misses = 0

    @property
    def keeps(self) -> bool:
        """Whether anything outlives its forward."""
        return self._max_bytes > 0

    @property
    def counts(self) -> ReuseCounts:
        with self._lock:
            return ReuseCounts(hits=self._hits, misses=self._misses, live_bytes=sum(self._bytes.values()))

    def outputs(
        self,
        images: Sequence[np.ndarray],
        grids: Sequence[ImageGrid],
        scopes: Sequence[str],
        *,
        deepstack: bool,
        run: Run,
    ) -> VisionOutputs:
        """Rows of every picture in order, as ``run`` of all of them would give; it gets the unknown ones, once each.

        Rows with and without deepstack are kept apart: a forward without text layers has none.
        """
        scopes = scopes if self._max_bytes else [""] * len(images)
        names = [(name, deepstack) for name in _names(images, scopes, dedup=self._dedup)]
        found: dict[Hashable, VisionOutputs] = {}
        for name, scope in dict.fromkeys(zip(names, scopes, strict=True)):
            if scope and (kept := self._take(scope, name)) is not None:
                found[name] = kept
        first = {name: index for index, name in reversed(list(enumerate(names))) if name not in found}
        missing = sorted(first.values())
        if len(missing) == len(images):
            computed = run(images, grids, deepstack)
            self._keep_all(names, grids, scopes, computed)
            return computed
        if missing:
            chosen = [grids[index] for index in missing]
            computed = run([images[index] for index in missing], chosen, deepstack)
            self._keep_all([names[i] for i in missing], chosen, [scopes[i] for i in missing], computed)
            found |= dict(zip([names[index] for index in missing], _split(computed, chosen), strict=True))
        return _joined([found[name] for name in names])

    def _take(self, scope: str, name: Hashable) -> VisionOutputs | None:
        with self._lock:
            kept = self._kept.get(scope, OrderedDict())
            if name not in kept:
                self._misses += 1
                return None
            self._hits += 1
            kept.move_to_end(name)
            return kept[name]

    def _keep_all(
        self, names: Sequence[Hashable], grids: Sequence[ImageGrid], scopes: Sequence[str], computed: VisionOutputs
    ) -> None:
        for name, scope, rows in zip(names, scopes, _split(computed, grids), strict=True):
            if scope and rows.bytes_held <= self._max_bytes:
                self._keep(scope, name, rows)

    def _keep(self, scope: str, name: Hashable, rows: VisionOutputs) -> None:
        """Room is made before the copy: the bound holds at every moment."""
        with self._lock:
            if name in self._kept.get(scope, ()):
                return
            while sum(self._bytes.values()) + rows.bytes_held > self._max_bytes:
                self._drop_one(max(self._bytes, key=self._bytes.__getitem__))
            self._kept.setdefault(scope, OrderedDict())[name] = rows.own()
            self._bytes[scope] = self._bytes.get(scope, 0) + rows.bytes_held

    def _drop_one(self, scope: str) -> None:
        _, rows = self._kept[scope].popitem(last=False)
        self._bytes[scope] -= rows.bytes_held
        if not self._kept[scope]:
            del self._kept[scope], self._bytes[scope]


def _names(images: Sequence[np.ndarray], scopes: Sequence[str], *, dedup: bool) -> list[tuple[str, Hashable]]:
    """Equal for equal pictures of one scope. Whole pictures are hashed only where one could be known already."""
    probes = [(scope, *_probe(image)) for image, scope in zip(images, scopes, strict=True)]
    seen = Counter(probes)
    return [
        (scope, _digest(image) if scope or (dedup and seen[probe] > 1) else index)
        for index, (image, scope, probe) in enumerate(zip(images, scopes, probes, strict=True))
    ]


def _probe(image: np.ndarray) -> tuple[Hashable, ...]:
    return (image.shape, image[::_PROBE_STEP, ::_PROBE_STEP].tobytes())


def _digest(image: np.ndarray) -> bytes:
    digest = hashlib.blake2b(f"{image.shape}".encode(), digest_size=_DIGEST_BYTES)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()


def _split(outputs: VisionOutputs, grids: Sequence[ImageGrid]) -> list[VisionOutputs]:
    starts = np.cumsum([0, *(grid.patches for grid in grids)]).tolist()
    return [outputs.rows(start, grid.patches) for start, grid in zip(starts, grids, strict=False)]


def _joined(parts: Sequence[VisionOutputs]) -> VisionOutputs:
    return VisionOutputs(
        last_PD=torch.cat([part.last_PD for part in parts]),
        deepstack=tuple(torch.cat(levels) for levels in zip(*(part.deepstack for part in parts), strict=True)),
    )
