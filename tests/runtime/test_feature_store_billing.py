"""What stored features cost, to the microsecond: who reads them pays the reading, who computes pays the forward."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpu_runtime.batching.repeats import without_repeats
from gpu_runtime.data.samples import FrameRef, SampleBatch
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Rows
from gpu_runtime.features.store import DatasetFeatures, FeatureStore
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training import slices
from gpu_runtime.training.frames import FrameRows, StagingRoom
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.step import Member
from gpu_runtime.training.work import Frames, Work, pack_batch
from tests.runtime.test_device_step import FakeBase, FakeSlot, ManualClock, run

DATASET = "version@hash"
FORWARD_US, READ_US, HEAD_US = 40, 3, 30  # of each distinct frame; of each look-up; of each training step
_ids = itertools.count()


class Base(FakeBase):
    """Each distinct frame of a group costs its forward; ten tokens each."""

    info = SimpleNamespace(device="cpu")

    def encode(self, features, taps):
        self.clock.spend_us(FORWARD_US * len(without_repeats(features)))
        self.forwards.append(len(features))
        return [{"merged": torch.tensor([[float(feature.images[0].mean())]])} for feature in features]


class TimedDoor:
    """The store's own door, where a look-up takes its time."""

    def __init__(self, door: DatasetFeatures, clock: ManualClock) -> None:
        self.dataset, self._door, self._clock = door.dataset, door, clock
        self.put, self.missing = door.put, door.missing

    def take(self, keys: Sequence[FrameKey]) -> list[Rows | None]:
        self._clock.spend_us(READ_US)
        return self._door.take(keys)


class Bench:
    """One store, one base and tenants that train on frames of one dataset version."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.base = Base(self.clock)
        self.partitions = PartitionStore(folder, 10**7)
        self.store = FeatureStore(None, ram_bytes=2**20, file_bytes=0, dtype="float32")
        patch.setattr(slices, "time", SimpleNamespace(perf_counter_ns=self.clock.now_ns))

    def member(self, frames: Sequence[int]) -> Member:
        """A training step of a new tenant; a frame's pixels are its number."""
        partition_id = tenant = f"t{next(_ids)}"
        refs = tuple(FrameRef(0, frame) for frame in frames)
        images = np.stack([np.full((4, 4, 3), frame, dtype=np.uint8) for frame in frames])
        batch = SampleBatch(
            images=(images,),
            instructions=("push",) * len(frames),
            state_BS=None,
            actions_BHA=np.zeros((len(frames), 1, 1), dtype=np.float32),
            mask_BH=np.ones((len(frames), 1), dtype=bool),
        )
        self.partitions.put(partition_id, *pack_batch(batch, Frames(refs=refs, pictured=tuple(range(len(frames))))))
        source = SimpleNamespace(cameras=("view",), instruction=lambda ref: "push")
        slot = FakeSlot(self.clock, cost_us=HEAD_US)
        job = MountedJob(job_id=tenant, attempt=1, tenant_id=tenant, slot=slot, backbone=self.base, checkpoint_every=9)
        job.frames = FrameRows(TimedDoor(self.store.open(DATASET), self.clock), source, "prefix", StagingRoom(0))
        return Member(partition_id=partition_id, job=job, work=Work(purpose=Purpose.TRAIN, step=1))

    def step(self, *members: Member) -> dict[str, int]:
        """Run one device step; everybody's share in microseconds. The sum is checked to be the busy time."""
        result = run(self.partitions, self.clock, list(members))
        self.clock.ns = 0
        assert result.span.overhead_us == 0
        for one in members:
            assert one.applied, one.failure
            assert result.usage[one.job.tenant_id].lines[-1].quantity == result.span.shares[one.job.tenant_id]
        return result.span.shares


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_beside_a_tenant_that_computes_one_with_stored_frames_pays_its_own_reading_and_head_only(
    bench: Bench,
) -> None:
    bench.step(bench.member([1, 2, 3]))
    hits, misses = bench.member([3, 1, 2]), bench.member([7, 8])
    shares = bench.step(hits, misses)
    assert shares[hits.job.tenant_id] == READ_US + HEAD_US
    assert shares[misses.job.tenant_id] == READ_US + HEAD_US + 2 * FORWARD_US
    assert (hits.shared_tokens, misses.shared_tokens) == (0, 20)
    assert (hits.feature_hits, misses.feature_hits) == (1.0, 0.0)
    assert hits.job.slot.seen == [3.0, 1.0, 2.0]
    assert bench.base.forwards == [3, 2]


def test_a_group_with_stored_frames_only_runs_no_forward_and_everybody_pays_his_own(bench: Bench) -> None:
    bench.step(bench.member([1, 2]))
    first, second = bench.member([1, 2]), bench.member([2])
    assert set(bench.step(first, second).values()) == {READ_US + HEAD_US}
    assert bench.base.forwards == [2]


def test_who_has_half_of_its_frames_pays_for_the_other_half(bench: Bench) -> None:
    bench.step(bench.member([1, 2]))
    half, none = bench.member([1, 5]), bench.member([6])
    shares = bench.step(half, none)
    assert set(shares.values()) == {READ_US + HEAD_US + FORWARD_US}


def test_a_frame_that_two_miss_together_runs_once_and_each_pays_by_the_tokens_it_asked_for(bench: Bench) -> None:
    """Three distinct frames run; the first tenant asked for 10 tokens, the other for 30."""
    small, large = bench.member([4]), bench.member([4, 5, 6])
    shares = bench.step(small, large)
    assert shares[small.job.tenant_id] == READ_US + HEAD_US + 3 * FORWARD_US // 4
    assert shares[large.job.tenant_id] == READ_US + HEAD_US + 3 * FORWARD_US * 3 // 4
    assert bench.store.status().entries == 3
    assert large.job.slot.seen == [4.0, 5.0, 6.0]


def test_a_share_that_does_not_divide_evenly_loses_no_microsecond(bench: Bench) -> None:
    tenants = [bench.member([9]) for _ in range(3)]  # one forward of 40 us for three
    shares = bench.step(*tenants)
    assert sorted(share - READ_US - HEAD_US for share in shares.values()) == [13, 13, 14]
