"""One device step with a base and slots of our own: exact times, and faults that stay where they happen."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.errors import NonFiniteLoss
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.record import record_step
from gpu_runtime.training.step import DeviceStep, Member
from gpu_runtime.training.work import Work, pack_batch, unpack_batch

# Shapes: B samples, H actions per sample, A action dimensions


class ManualClock:
    """Time passes only where the test says so."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def spend_us(self, microseconds: int) -> None:
        self.ns += microseconds * 1000


class FakeBase:
    """Features are the mean pixel; an instruction of "explode" makes any forward with it fail."""

    def __init__(self, clock: ManualClock, largest_group: int = 99) -> None:
        self.clock, self.largest_group = clock, largest_group
        self.forwards: list[int] = []

    def tokens(self, feature) -> int:
        return 10 * len(feature.images)

    def tokens_together(self, features) -> int:
        return sum(map(self.tokens, features))

    def encode(self, features, taps):
        self.clock.spend_us(100)
        self.forwards.append(len(features))
        if len(features) > self.largest_group:
            raise torch.OutOfMemoryError("out of memory")
        if any(feature.instruction == "explode" for feature in features):
            raise RuntimeError("this base cannot read that")
        return [{"merged": torch.tensor([[float(feature.images[0].mean())]])} for feature in features]


class FakeSlot:
    """Counts what it was given."""

    kind, query_tokens, taps, lora = "sft", 0, frozenset({"merged"}), None

    def __init__(self, clock: ManualClock, cost_us: int = 30, fault: Exception | None = None) -> None:
        self.clock, self.cost_us, self.fault = clock, cost_us, fault
        self.seen: list[float] = []

    def train_step(self, features, batch, partition_id):
        self.clock.spend_us(self.cost_us)
        if self.fault is not None:
            raise self.fault
        self.seen += [float(sample["merged"].mean()) for sample in features]
        return {"loss": 1.0}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path, 10**7)


_ids = itertools.count()


def member(store: PartitionStore, base: FakeBase, slot: FakeSlot, *, text: str = "push", samples: int = 2) -> Member:
    """One training partition of a tenant of its own; its pixels are its number."""
    number = next(_ids)
    partition_id, tenant = f"p{number}", f"t{number}"
    batch = SampleBatch(
        images=(np.full((samples, 4, 4, 3), number, dtype=np.uint8),),
        instructions=(text,) * samples,
        state_BS=None,
        actions_BHA=np.zeros((samples, 1, 1), dtype=np.float32),
        mask_BH=np.ones((samples, 1), dtype=bool),
    )
    store.put(partition_id, *pack_batch(batch))
    job = MountedJob(job_id=tenant, attempt=1, tenant_id=tenant, slot=slot, backbone=base, checkpoint_every=9)
    return Member(partition_id=partition_id, job=job, work=Work(purpose=Purpose.TRAIN, step=1))


def run(store: PartitionStore, clock: ManualClock, members: list[Member]) -> SimpleNamespace:
    outcome = DeviceStep(store, clock).run(members)
    record = record_step(outcome, leased_at_us=0)
    span = record.entries[0].body
    assert sum(span.shares.values()) + span.overhead_us == span.busy_us == clock.ns // 1000
    usage = {e.tenant_id: e.body for e in record.entries if e.body.type == "usage"}
    return SimpleNamespace(span=span, usage=usage, members=outcome.members)


def test_one_forward_serves_the_group_and_its_time_is_split_by_tokens(store, clock) -> None:
    base = FakeBase(clock)
    small = member(store, base, FakeSlot(clock, cost_us=7), samples=1)
    large = member(store, base, FakeSlot(clock, cost_us=50), samples=3)
    result = run(store, clock, [small, large])
    assert base.forwards == [4]
    assert result.span.shares == {small.job.tenant_id: 25 + 7, large.job.tenant_id: 75 + 50}
    assert result.span.overhead_us == 0
    assert large.job.slot.seen == [float(large.partition_id[1:])] * 3


def test_a_fault_in_one_slice_is_that_tenants_alone(store, clock) -> None:
    base = FakeBase(clock)
    bad = member(store, base, FakeSlot(clock, fault=NonFiniteLoss("loss is nan")))
    good = member(store, base, FakeSlot(clock))
    result = run(store, clock, [bad, good])
    assert (bad.failure.reason, good.failure) == ("non_finite_loss", None)
    assert good.applied
    assert good.job.slot.seen
    assert not result.usage[bad.job.tenant_id].billable
    assert result.usage[good.job.tenant_id].billable


def test_the_culprit_of_a_failed_forward_is_found_and_its_mates_go_on(store, clock) -> None:
    base = FakeBase(clock)
    mates = [member(store, base, FakeSlot(clock)) for _ in range(2)]
    culprit = member(store, base, FakeSlot(clock), text="explode")
    result = run(store, clock, [mates[0], culprit, mates[1]])
    assert base.forwards == [6, 2, 2, 2]
    assert culprit.failure.reason == "step_failed"
    assert "cannot read that" in culprit.failure.message
    assert culprit.job.slot.seen == []
    for mate in mates:
        assert mate.job.slot.seen == [float(mate.partition_id[1:])] * 2
        assert result.span.shares[mate.job.tenant_id] == 100 + 30
    assert result.span.shares[culprit.job.tenant_id] == 100
    assert result.span.overhead_us == 100, "the failed try of the group is nobody's"


def test_a_group_that_does_not_fit_into_memory_is_run_one_by_one(store, clock) -> None:
    base = FakeBase(clock, largest_group=2)
    members = [member(store, base, FakeSlot(clock)) for _ in range(3)]
    run(store, clock, members)
    assert base.forwards == [6, 2, 2, 2]
    assert all(m.applied and m.job.slot.seen for m in members)


def test_a_single_member_that_does_not_fit_is_told_so(store, clock) -> None:
    alone = member(store, FakeBase(clock, largest_group=1), FakeSlot(clock))
    run(store, clock, [alone])
    assert alone.failure.reason == "out_of_memory"


def test_an_unreadable_partition_fails_its_owner_only(store, clock, tmp_path: Path) -> None:
    base = FakeBase(clock)
    broken, good = (member(store, base, FakeSlot(clock)) for _ in range(2))
    (tmp_path / f"{broken.partition_id}.safetensors").write_bytes(b"not a tensor")
    result = run(store, clock, [broken, good])
    assert broken.failure.reason == "partition_unreadable"
    assert good.job.slot.seen
    assert result.span.shares[broken.job.tenant_id] == 0


def test_a_stopped_job_is_skipped_and_neither_failed_nor_billed(store, clock) -> None:
    base = FakeBase(clock)
    stopped, good = (member(store, base, FakeSlot(clock)) for _ in range(2))
    stopped.job.stopped = True
    store.clear(stopped.partition_id)
    result = run(store, clock, [stopped, good])
    assert (stopped.skipped, stopped.failure, stopped.job.slot.seen) == (True, None, [])
    assert result.usage[stopped.job.tenant_id].reason == "cancelled"
    assert base.forwards == [2]


def test_a_group_of_which_nobody_came_to_the_forward_is_overhead(store, clock, tmp_path: Path) -> None:
    broken = member(store, FakeBase(clock), FakeSlot(clock))
    store.clear(broken.partition_id)
    result = run(store, clock, [broken])
    assert result.span.shares == {broken.job.tenant_id: 0}


def test_a_batch_comes_out_of_its_payload_as_it_went_in(store) -> None:
    batch = SampleBatch(
        images=tuple(np.random.default_rng(view).integers(0, 255, (2, 4, 4, 3), dtype=np.uint8) for view in range(12)),
        instructions=("a", 'quoted "b"'),
        state_BS=np.ones((2, 3), dtype=np.float32),
        actions_BHA=np.zeros((2, 5, 1), dtype=np.float32),
        mask_BH=np.array([[True] * 5, [False] * 5]),
    )
    store.put("whole", *pack_batch(batch))
    back = unpack_batch(*store.open("whole"))
    assert back.instructions == batch.instructions
    assert all(np.array_equal(a, b) for a, b in zip(back.images, batch.images, strict=True))
    for name in ("state_BS", "actions_BHA", "mask_BH"):
        assert np.array_equal(getattr(back, name), getattr(batch, name))
