"""What a device step does for one member before and after the shared forward, by kind of slot."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.handles import handle_of
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.training.frames import FrameRows
from gpu_runtime.training.member import Member
from gpu_runtime.training.rl.batch import RlBatch, unpack_rl_batch
from gpu_runtime.training.rl.errors import ForeignHandle, RolloutMismatch
from gpu_runtime.training.rl.update import update
from gpu_runtime.training.work import Frames, unpack_batch, unpack_frames


class Slice(Protocol):
    """One kind of slot. Faults are raised; whose they are the step knows."""

    def open(self, member: Member, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
        """Unpack the batch and say what must go through the shared forward."""

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


class SftSlice:
    """Frames of a dataset: those without stored features go through the forward, each once."""

    def open(self, member: Member, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
        batch = unpack_batch(arrays, metadata)
        member.batch, frames = batch, unpack_frames(arrays, batch)
        if member.job.frames is None or frames is None:
            member.inputs = to_features(batch, member.job.slot.query_tokens)
        else:
            self._look_up(member, member.job.frames, frames)
            member.inputs = _inputs(member, batch, member.job.frames, frames)
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

    def _look_up(self, member: Member, stored: FrameRows, frames: Frames) -> None:
        """Its time is the member's own: that is all a stored feature costs."""
        begin_ns = time.perf_counter_ns()
        member.keys = stored.keys(frames.refs)
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


class RlSlice:
    """Chunks of rollouts: each observation once, and only where its features were not kept."""

    def __init__(self, kept: FeatureStore) -> None:
        self._kept = kept

    def open(self, member: Member, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
        slot = member.job.slot
        assert isinstance(slot, RlSlot), "chosen by kind"
        if member.work.purpose is not Purpose.TRAIN:
            raise RolloutMismatch(f"purpose: {member.work.purpose}, allowed: {Purpose.TRAIN}")
        batch = unpack_rl_batch(arrays, metadata)
        prefix = slot.policy.signature(member.job.backbone).hash
        found = _Observations(member.job.tenant_id, prefix, batch, slot.query_tokens, self._kept)
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

    def __init__(
        self, tenant_id: str, prefix_hash: str, batch: RlBatch, query_tokens: int, kept: FeatureStore
    ) -> None:
        self._tenant_id = tenant_id
        self._names = [
            handle_of(tenant_id, prefix_hash, batch.feature(row, query_tokens)) for row in range(len(batch))
        ]
        self._known: dict[str, Features] = {}
        self.missing: dict[str, int] = {}  # name -> its first row
        for row, (name, given) in enumerate(zip(self._names, batch.handles, strict=True)):
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
