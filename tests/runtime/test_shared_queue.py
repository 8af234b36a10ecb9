"""The training queue of a process with data that age: waits, drops and losses leave nothing behind."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_runtime.protocol.ids import JobId
from gpu_runtime.scheduler.training_queue import (
    Freshness,
    Group,
    Purpose,
    QueueLimits,
    TrainingJobState,
    TrainingQueue,
)
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.queue import SharedQueue
from gpu_runtime.training.rl.batch import empty_batch, pack_rl_batch
from gpu_runtime.training.work import Work

PAYLOAD = pack_rl_batch(empty_batch(2))


@dataclass(kw_only=True)
class World:
    queue: SharedQueue
    store: PartitionStore

    def job(self, tenant: str = "a") -> MountedJob:
        slot: Any = SimpleNamespace(kind="rl", step=0)
        base: Any = SimpleNamespace(group_key="base")
        return MountedJob(job_id=tenant, attempt=1, tenant_id=tenant, slot=slot, backbone=base, checkpoint_every=9)

    async def reserve(self, job: MountedJob, step: int, freshness: Any) -> str:
        partition_id = f"{job.tenant_id}{step}"
        work = Work(purpose=Purpose.TRAIN, step=step)
        assert await self.queue.reserve(job, work, partition_id, priority=5, samples=1, tokens=1, freshness=freshness)
        return partition_id

    async def ready(self, job: MountedJob, step: int, *, behaviour: int, most: int) -> str:
        freshness = Freshness(behaviour_version=behaviour, max_staleness=most)
        partition_id = await self.reserve(job, step, freshness)
        await self.queue.put(job, partition_id, PAYLOAD)
        return partition_id

    def lease(self) -> Group:
        group = self.queue.next_group()
        assert group is not None
        return group

    async def consume(self, job: MountedJob) -> str:
        """One update of the job."""
        (lease,) = self.lease().leases
        self.queue.settle(job, lease, charge_us=1)
        await asyncio.sleep(0)  # its bytes are returned while its caller waits
        return lease.job.partition_id

    def nothing_is_held(self) -> bool:
        return self.store.live_bytes == self.queue.queue.live_bytes() == 0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with _world(tmp_path) as made:
        yield made


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[World]:
    limits = QueueLimits(bytes_per_tenant=10**6, bytes_total=10**7, lease_ttl_us=10**9)
    queue = TrainingQueue(limits, batch_limit_tokens=100, window_us=0, wait_us=0)
    store, journal = PartitionStore(folder / "partitions", 10**6), Journal(folder / "journal.sqlite3")
    with ThreadPoolExecutor(1) as files:
        durability = Durability(journal, folder)
        yield World(queue=SharedQueue(queue, store, durability, files, 10**6), store=store)


async def test_a_batch_that_is_too_old_when_its_turn_comes_is_dropped_and_told(world: World) -> None:
    job = world.job()
    for step in (1, 2, 3):
        await world.ready(job, step, behaviour=0, most=step - 1)
    world.queue.queue.set_policy_version(JobId(job.key), 2)  # weights of a later version were mounted
    assert await world.consume(job) == "a3"
    assert (job.dropped_stale, job.stale_in_a_row) == (2, 0)
    assert job.outstanding == {}
    assert world.nothing_is_held()
    assert world.queue.queue.job("a1").state is TrainingJobState.DROPPED_STALE


async def test_stale_batches_in_a_row_are_counted_until_a_step_is_made(world: World) -> None:
    job = world.job()
    for step in (1, 2):
        await world.ready(job, step, behaviour=0, most=1)
    world.queue.queue.set_policy_version(JobId(job.key), 5)
    assert world.queue.next_group() is None
    assert (job.dropped_stale, job.stale_in_a_row, job.outstanding) == (2, 2, {})
    await world.ready(job, 6, behaviour=5, most=0)
    await world.consume(job)
    assert (job.dropped_stale, job.stale_in_a_row) == (2, 0)


async def test_whoever_waits_hears_of_a_drop(world: World) -> None:
    job = world.job()
    await world.ready(job, 1, behaviour=0, most=0)
    waiting = asyncio.create_task(world.queue.changed.wait(5))
    await asyncio.sleep(0)
    world.queue.queue.set_policy_version(JobId(job.key), 1)
    assert world.queue.next_group() is None
    assert await waiting


async def test_a_rollout_that_would_be_too_old_waits_for_the_next_version(world: World) -> None:
    job, published = world.job(), [0]
    await world.ready(job, 1, behaviour=0, most=0)

    def freshness() -> Freshness:
        return Freshness(behaviour_version=published[0], max_staleness=0)

    waiting = asyncio.create_task(world.reserve(job, 2, freshness))
    await asyncio.sleep(0.01)
    assert not waiting.done(), "the policy that would act is one update behind its turn"
    await world.consume(job)
    await asyncio.sleep(0.01)
    assert not waiting.done(), "the version is made, and not published yet"
    published[0] = 1
    world.queue.changed.notify()
    assert await asyncio.wait_for(waiting, 5) == "a2"
    world.queue.stop_job(job, reason="over")


async def test_a_job_that_stops_waits_for_no_version(world: World) -> None:
    job = world.job()
    await world.ready(job, 1, behaviour=0, most=0)
    freshness = Freshness(behaviour_version=0, max_staleness=0)
    work = Work(purpose=Purpose.TRAIN, step=2)
    waiting = asyncio.create_task(
        world.queue.reserve(job, work, "a2", priority=5, samples=1, tokens=1, freshness=freshness)
    )
    await asyncio.sleep(0.01)
    world.queue.stop_job(job, reason="cancelled")
    assert await asyncio.wait_for(waiting, 5) is False
    assert world.nothing_is_held()


async def test_a_rollout_that_is_given_up_leaves_the_others_of_its_job(world: World) -> None:
    job = world.job()
    lost = await world.reserve(job, 1, Freshness(behaviour_version=0, max_staleness=1))
    world.queue.advance(lost, TrainingJobState.PRODUCING)
    await world.ready(job, 2, behaviour=0, most=1)
    world.queue.abandon(job, lost, reason="environment_lost")
    world.queue.abandon(job, lost, reason="said twice")
    assert list(job.outstanding) == ["a2"]
    assert await world.consume(job) == "a2"
    assert world.queue.queue.policy_version(JobId(job.key)) == 1
    assert world.queue.queue.job(lost).reason == "environment_lost"
    assert world.nothing_is_held()


async def test_a_payload_that_comes_after_its_partition_was_given_up_is_not_kept(world: World) -> None:
    job = world.job()
    lost = await world.reserve(job, 1, Freshness(behaviour_version=0, max_staleness=1))
    world.queue.abandon(job, lost, reason="environment_lost")
    await world.queue.put(job, lost, PAYLOAD)
    world.queue.advance(lost, TrainingJobState.COMPUTING_ADVANTAGE)
    assert world.queue.next_group() is None
    assert world.nothing_is_held()


async def test_a_producer_that_is_cancelled_while_it_writes_leaves_no_byte(world: World, monkeypatch) -> None:
    job, begun, may_end = world.job(), threading.Event(), threading.Event()
    write = world.store.put

    def slow(*arguments: Any) -> int:
        begun.set()
        may_end.wait(5)
        return write(*arguments)

    monkeypatch.setattr(world.store, "put", slow)
    partition_id = await world.reserve(job, 1, Freshness(behaviour_version=0, max_staleness=1))
    putting = asyncio.create_task(world.queue.put(job, partition_id, PAYLOAD))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    putting.cancel()
    await asyncio.sleep(0.01)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert job.outstanding == {}
    assert world.nothing_is_held()
    assert list((world.store._root).glob("*.safetensors")) == []


async def test_one_tenants_stale_batches_are_nobody_elses(world: World) -> None:
    mine, theirs = world.job("a"), world.job("b")
    await world.ready(mine, 1, behaviour=0, most=0)
    await world.ready(theirs, 1, behaviour=0, most=0)
    world.queue.queue.set_policy_version(JobId(mine.key), 3)
    assert await world.consume(theirs) == "b1"
    assert (mine.dropped_stale, theirs.dropped_stale) == (1, 0)


async def test_a_settled_partition_returns_its_bytes_behind_the_back_of_whoever_takes_the_next_group(
    world: World,
) -> None:
    job = world.job()
    for step in (1, 2):
        await world.ready(job, step, behaviour=0, most=step)
    (lease,) = world.lease().leases
    held = world.store.live_bytes
    woken = asyncio.create_task(world.queue.changed.wait())
    await asyncio.sleep(0)
    world.queue.settle(job, lease, charge_us=1)
    assert list(job.outstanding) == ["a2"], "its place is free at once"
    assert [lease.job.partition_id for lease in world.lease().leases] == ["a2"]
    assert world.store.live_bytes == held
    assert await woken
    assert 0 < world.store.live_bytes < held
    assert world.store.live_bytes == world.queue.queue.live_bytes()
