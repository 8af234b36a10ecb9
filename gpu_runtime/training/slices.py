"""What a device step does for one member before and after the shared forward, by kind of slot."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.handles import Handle, handle_of
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.training.frames import FrameRows
from gpu_runtime.training.member import Member
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.rl.batch import RlBatch, unpack_rl_batch
from gpu_runtime.training.rl.errors import ForeignHandle, RolloutMismatch
from gpu_runtime.training.rl.update import update
from gpu_runtime.training.work import Frames, unpack_batch, unpack_frames


class Slice(Protocol):
    """One kind of slot. Faults are raised; whose they are the step knows."""

    def read(self, job: MountedJob, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Any:
        """Unpack a payload for ``open``. In any thread, maybe long before: it changes nothing, and asks for nothing
        that a step changes."""

    def open(self, member: Member, payload: Any) -> None:
        """Take the batch and say what must go through the shared forward."""

    def gather(self, member: Member, computed: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """What ``run`` takes; ``computed`` are the features of ``member.inputs``."""

    def run(self, member: Member, features: Sequence[Features]) -> None:
        """Do what the partition is for. Training steps of imitation are not run here: a ``Trainer`` makes them."""


class FeatureStore(Protocol):
    """Prefix features that rollouts left behind, by tenant and handle; ``FeatureHandles`` is one."""

    def peek(self, tenant_id: str, handle: str) -> Features | None: ...

    def put_rows(self, tenant_id: str, slot_id: str, handle: str, rows: Features) -> None: ...


class NothingKept:
    """Every feature is computed."""

    def peek(self, tenant_id: str, handle: str) -> Features | None:
        return None

    def put_rows(self, tenant_id: str, slot_id: str, handle: str, rows: Features) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesRead:
    """A batch of frames; ``keys`` are the names of its samples' features, none where none are stored."""

    batch: SampleBatch
    frames: Frames | None
    keys: list[FrameKey]


class SftSlice:
    """Frames of a dataset: those without stored features go through the forward, each once."""

    def read(self, job: MountedJob, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> FramesRead:
        batch = unpack_batch(arrays, metadata)
        frames = unpack_frames(arrays, batch)
        keys = [] if job.frames is None or frames is None else job.frames.keys(frames.refs)
        return FramesRead(batch=batch, frames=frames, keys=keys)

    def open(self, member: Member, payload: FramesRead) -> None:
        member.batch, member.keys = payload.batch, payload.keys
        if member.job.frames is None or payload.frames is None:
            member.inputs = to_features(payload.batch, member.job.slot.query_tokens)
        else:
            self._look_up(member, member.job.frames)
            member.inputs = _inputs(member, payload.batch, member.job.frames, payload.frames)
        if member.inputs:
            member.tokens = member.job.backbone.tokens_together(member.inputs)

    def gather(self, member: Member, computed: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        stored = member.job.frames
        if stored is None or not member.keys:
            return computed
        missing = [member.keys[row] for row in _missing(member)]
        rows = {key: stored.put(key, found) for key, found in zip(missing, computed, strict=True)}
        device = member.job.backbone.info.device
        merged = [known or rows[key] for key, known in zip(member.keys, member.known, strict=True)]
        return [{tap: value.to(device) for tap, value in taps.items()} for taps in merged]

    def _look_up(self, member: Member, stored: FrameRows) -> None:
        """Its time is the member's own: that is all a stored feature costs."""
        begin_ns = time.perf_counter_ns()
        known = stored.known(member.partition_id, member.keys)
        member.known = [known.get(key) for key in member.keys]
        member.private_ns += time.perf_counter_ns() - begin_ns

    def run(self, member: Member, features: Sequence[Features]) -> None:
        slot, batch = member.job.slot, member.batch
        assert isinstance(batch, SampleBatch), "opened before"
        assert not isinstance(slot, RlSlot), "chosen by kind"
        match member.work.purpose:
            case Purpose.FIT:
                slot.fit(features, batch)
            case Purpose.EVALUATE:
                member.error = slot.evaluate(features, batch)


def _missing(member: Member) -> list[int]:
    """The first sample of each distinct frame without stored features."""
    first = {key: row for row, key in reversed(list(enumerate(member.keys)))}
    return sorted(row for row in first.values() if member.known[row] is None)


def _inputs(member: Member, batch: SampleBatch, stored: FrameRows, frames: Frames) -> list[VLAFeature]:
    """What must be computed. Images that were left out, because their features were at hand then, are read again."""
    missing, place = _missing(member), {row: place for place, row in enumerate(frames.pictured)}
    images = {row: tuple(view[place[row]] for view in batch.images) for row in missing if row in place}
    again = [row for row in missing if row not in images]
    if again:
        views = stored.source.views([frames.refs[row] for row in again])
        images |= {row: tuple(view[at] for view in views) for at, row in enumerate(again)}
    queries = member.job.slot.query_tokens
    return [
        VLAFeature(
            images=images[row],
            instruction=batch.instructions[row],
            query_tokens=queries,
            key=member.keys[row],  # another tenant may miss the same frame in this very step
        )
        for row in missing
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksRead:
    """A batch of chunks; ``names`` are the handles that its observations have by right."""

    batch: RlBatch
    names: tuple[Handle, ...]


class RlSlice:
    """Chunks of rollouts: each observation once, and only where its features were not kept."""

    def __init__(self, kept: FeatureStore) -> None:
        self._kept = kept

    def read(self, job: MountedJob, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> ChunksRead:
        batch, slot = unpack_rl_batch(arrays, metadata), job.slot
        prefix, queries = slot.policy.signature(job.backbone).hash, slot.query_tokens
        names = (handle_of(job.tenant_id, prefix, batch.feature(row, queries)) for row in range(len(batch)))
        return ChunksRead(batch=batch, names=tuple(names))

    def open(self, member: Member, payload: ChunksRead) -> None:
        slot, batch = member.job.slot, payload.batch
        assert isinstance(slot, RlSlot), "chosen by kind"
        if member.work.purpose is not Purpose.TRAIN:
            raise RolloutMismatch(f"purpose: {member.work.purpose}, allowed: {Purpose.TRAIN}")
        found = _Observations(member.job.tenant_id, payload, self._kept)
        member.batch = batch
        member.inputs = [batch.feature(row, slot.query_tokens) for row in found.missing.values()]
        member.tokens = member.job.backbone.tokens_together(member.inputs)
        member.observations = found

    def gather(self, member: Member, computed: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        return computed

    def run(self, member: Member, features: Sequence[Features]) -> None:
        slot, batch = member.job.slot, member.batch
        assert isinstance(batch, RlBatch), "opened before"
        assert isinstance(slot, RlSlot), "chosen by kind"
        if slot.job is None:
            raise RolloutMismatch("slot: made without a job, allowed: RlSlot.create")
        found = member.observations
        assert isinstance(found, _Observations), "opened before"
        hits = found.hits
        rows = found.rows(features, member.job.key, self._kept, slot.policy.device)
        member.metrics = update(slot, rows, batch, slot.job, partition_id=member.partition_id)
        member.metrics["train/feature_hits"] = hits


class _Observations:
    """The distinct observations of one batch: those whose features are kept, and the row each other one comes from."""

    def __init__(self, tenant_id: str, payload: ChunksRead, kept: FeatureStore) -> None:
        self._tenant_id, self._names = tenant_id, payload.names
        self._known: dict[str, Features] = {}
        self.missing: dict[str, int] = {}  # name -> its first row
        for row, (name, given) in enumerate(zip(self._names, payload.batch.handles, strict=True)):
            if given not in ("", name):
                raise ForeignHandle(f"handles[{row}]: no features of this observation go by {given!r}")
            if name in self._known or name in self.missing:
                continue
            rows = kept.peek(tenant_id, name)
            if rows is None:
                self.missing[name] = row
            else:
                self._known[name] = rows

    @property
    def hits(self) -> float:
        """Share of the chunks that need no forward."""
        return sum(name in self._known for name in self._names) / max(1, len(self._names))

    def rows(
        self, computed: Sequence[Features], slot_id: str, kept: FeatureStore, device: torch.device
    ) -> list[Features]:
        """Features of every chunk on the device; chunks with the same observation share theirs."""
        for name, rows in zip(self.missing, computed, strict=True):
            kept.put_rows(self._tenant_id, slot_id, name, rows)
        known = self._known | dict(zip(self.missing, computed, strict=True))
        placed = {name: {tap: value.to(device) for tap, value in rows.items()} for name, rows in known.items()}
        return [placed[name] for name in self._names]
