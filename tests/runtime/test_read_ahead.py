"""Batches are read before their turn: never more bytes than allowed, never kept once it ended, never another result.

Everything is one process with the tiny base, a small head and 32-pixel images.
"""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_runtime.protocol.messages import DatasetBinding, WorkloadState
from gpu_runtime.store.errors import PartitionUnreadable
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.ahead import ReadAhead, found
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.slices import SftSlice
from gpu_runtime.training.step import DeviceStep
from tests.support.demonstrations import bind, make_dataset
from tests.support.rl_jobs import make_job, rl_runtime, rl_spec
from tests.support.runtime import GR00T, MLP, ended, events_of, make_config, metric, running, submit_message

QUIET = {"evaluate_every": 4, "checkpoint_every": 1000}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


def a_job(tenant: str) -> MountedJob:
    slot: Any = SimpleNamespace(kind="sft")
    base: Any = SimpleNamespace(group_key="base")
    return MountedJob(job_id=tenant, attempt=1, tenant_id=tenant, slot=slot, backbone=base, checkpoint_every=9)


class Reader:
    """Reads by giving the name back; holds until it is let go."""

    def __init__(self) -> None:
        self.go, self.read, self.threads = threading.Event(), list[str](), ThreadPoolExecutor(2)
        self.go.set()

    def __call__(self, job: MountedJob, partition_id: str) -> str:
        assert self.go.wait(10)
        self.read.append(partition_id)
        if partition_id.startswith("bad"):
            raise PartitionUnreadable(partition_id)
        return partition_id

    def rest(self) -> None:
        """Wait until nothing is being read."""
        self.threads.shutdown(wait=True)
        self.threads = ThreadPoolExecutor(2)


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.go.set()
    made.threads.shutdown(wait=True)


# --- the reader by itself


def read(payload: Future[Any] | None) -> Any:
    """As ``found``, but for one whose thread was not there yet."""
    assert payload is not None
    return payload.result(10)


def test_of_every_job_the_oldest_is_read_and_the_next_once_that_is_taken(reader: Reader) -> None:
    ahead, jobs = ReadAhead(reader, reader.threads, 100), [a_job("a"), a_job("b")]
    for name in ("1", "2"):
        for job in jobs:
            ahead.offer(job, f"{job.tenant_id}{name}", 10)
    assert ahead.live_bytes == 20
    assert read(ahead.take("a1")) == "a1"
    assert ahead.take("a2") is None, "its turn to be read had not come"
    ahead.fill()
    assert read(ahead.take("b1")) == "b1"
    ahead.fill()
    assert read(ahead.take("b2")) == "b2"
    assert ahead.live_bytes == 0
    assert sorted(reader.read) == ["a1", "b1", "b2"]


def test_no_more_bytes_are_held_than_allowed_whatever_comes_in_whatever_order(reader: Reader) -> None:
    draw = random.Random(3)
    ahead, jobs, offered, most = ReadAhead(reader, reader.threads, 50), [a_job(f"t{n}") for n in range(9)], [], 0
    for number in range(400):
        match draw.choice(("offer", "offer", "take", "drop", "fill")):
            case "offer":
                ahead.offer(draw.choice(jobs), f"p{number}", draw.randint(0, 70))
                offered.append(f"p{number}")
            case "take" if offered:
                ahead.take(offered.pop(draw.randrange(len(offered))))
            case "drop" if offered:
                ahead.drop(offered.pop(draw.randrange(len(offered))))
            case _:
                ahead.fill()
        most = max(most, ahead.live_bytes)
    assert 25 < most <= 50
    for name in offered:
        ahead.drop(name)
    reader.threads.shutdown(wait=True)
    assert ahead.live_bytes == 0


def test_bytes_stay_booked_while_what_was_dropped_is_still_being_read(reader: Reader) -> None:
    reader.go.clear()
    ahead = ReadAhead(reader, reader.threads, 100)
    for tenant in ("a", "b", "c"):  # two are being read, the third is waiting for a thread
        ahead.offer(a_job(tenant), tenant, 30)
    for tenant in ("a", "b", "c"):
        ahead.drop(tenant)
    assert ahead.live_bytes == 60
    reader.go.set()
    reader.rest()
    assert ahead.live_bytes == 0
    assert sorted(reader.read) == ["a", "b"]


def test_a_read_that_has_not_begun_is_not_waited_for_and_one_that_failed_is_left_to_the_step(reader: Reader) -> None:
    ahead = ReadAhead(reader, reader.threads, 100)
    for name in ("bad", "good"):
        ahead.offer(a_job(name), name, 10)
    bad, good = ahead.take("bad"), ahead.take("good")
    assert bad is not None
    assert good is not None
    wait([bad, good], 10)
    assert found(bad) is None
    assert found(good) == "good"
    reader.go.clear()
    for name in ("b", "c", "d"):
        ahead.offer(a_job(name), name, 10)
    assert found(ahead.take("d")) is None
    assert found(None) is None
    reader.go.set()
    reader.rest()
    assert "d" not in reader.read


def test_zero_bytes_switch_it_off_and_a_partition_that_never_fits_is_not_waited_for(reader: Reader) -> None:
    off, small = ReadAhead(reader, reader.threads, 0), ReadAhead(reader, reader.threads, 10)
    off.offer(a_job("a"), "a", 1)
    assert off.take("a") is None
    small.offer(a_job("a"), "large", 11)
    small.offer(a_job("b"), "small", 10)
    assert small.take("large") is None
    assert read(small.take("small")) == "small"


# --- in a runtime


@contextmanager
def watched(patch: pytest.MonkeyPatch) -> Iterator[dict[str, list[str]]]:
    """Which thread read each partition's payload."""
    reads: dict[str, list[str]] = {}
    plain = DeviceStep.read

    def read(step: DeviceStep, job: MountedJob, partition_id: str) -> Any:
        reads.setdefault(partition_id, []).append(threading.current_thread().name.partition("_")[0])
        return plain(step, job, partition_id)

    with patch.context() as inner:
        inner.setattr(DeviceStep, "read", read)
        yield reads


@pytest.mark.parametrize("head", [GR00T, MLP], ids=["gr00t", "mlp"])
async def test_losses_and_evaluations_are_those_without_to_the_last_bit(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, head: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    found_by, threads = {}, {}
    for name, room in (("ahead", 2**20), ("plain", 0)):
        submits = [
            submit_message(binding, job_id=f"job-{tenant}", tenant_id=tenant, head=head, steps=12, **QUIET)
            for tenant in ("a", "b")
        ]
        with watched(monkeypatch) as reads:
            async with running(make_config(tmp_path / name, datasets, read_ahead_bytes=room)) as runtime:
                for submit in submits:
                    await runtime.master.submit(submit)
                for submit in submits:
                    assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
                assert runtime.ahead.live_bytes == 0
                events = events_of(runtime, "job-a")
        found_by[name] = metric(events, "train/loss"), metric(events, "eval/action_error")
        threads[name] = {thread for used in reads.values() for thread in used}
    assert len(found_by["plain"][0]) == 12
    assert found_by["ahead"] == found_by["plain"]
    assert threads["plain"] == {"compute"}
    assert "ahead" in threads["ahead"]


async def test_policy_updates_are_those_without_to_the_last_bit(tmp_path: Path) -> None:
    spec = rl_spec(training={"iterations": 4, "epochs": 2}, collection={"max_staleness": 0})
    told = {}
    for name, room in (("ahead", 2**20), ("plain", 0)):
        async with rl_runtime(tmp_path / name, read_ahead_bytes=room) as runtime:
            job = make_job(runtime, spec, cameras=True)
            await job.run()
            names = ("train/loss", "train/policy_loss", "train/value_loss", "train/feature_hits")
            told[name] = [job.trained(metric_name) for metric_name in names]
    assert len(told["plain"][0]) == 4
    assert told["ahead"] == told["plain"]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def held_device(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SimpleNamespace]:
    """A runtime whose device is on a step of one job until ``go``, while payloads of two are read ahead."""
    go, plain = threading.Event(), DeviceStep.run

    def run(step: DeviceStep, members: Any) -> Any:
        outcome = plain(step, members)
        assert go.wait(30)
        return outcome

    monkeypatch.setattr(DeviceStep, "run", run)
    submits = [submit_message(binding, job_id=f"job-{t}", tenant_id=t, steps=12, **QUIET) for t in ("a", "b")]
    async with running(make_config(tmp_path, datasets)) as runtime:
        try:
            for submit in submits:
                await runtime.master.submit(submit)
            await until(lambda: len(runtime.ahead._held) == 2)
            yield SimpleNamespace(runtime=runtime, submits=submits, go=go)
        finally:
            go.set()


async def test_a_job_cancelled_while_its_batch_is_read_ahead_holds_nothing_and_the_other_goes_on(
    held_device: SimpleNamespace,
) -> None:
    runtime = held_device.runtime
    victim = next(job for job in runtime.training.mounted if job.tenant_id == "a")
    runtime.queue.stop_job(victim, reason="test")
    assert {held.job_key for held in runtime.ahead._held.values()} == {"job-b/1"}
    held_device.go.set()
    assert (await ended(runtime, held_device.submits[1])).state is WorkloadState.SUCCEEDED
    await ended(runtime, held_device.submits[0])
    assert len(metric(events_of(runtime, "job-b"), "train/loss")) == 12
    assert runtime.ahead.live_bytes == runtime.partitions.live_bytes == 0


async def test_a_payload_that_vanishes_after_it_was_read_is_not_missed_and_one_that_was_not_fails_its_job_alone(
    held_device: SimpleNamespace,
) -> None:
    runtime = held_device.runtime

    def waiting() -> list[str]:
        return [name for name, wanted in runtime.ahead._wanted.items() if wanted.job.tenant_id == "b"]

    await until(lambda: waiting() and all(held.payload.done() for held in runtime.ahead._held.values()))
    for name in (*runtime.ahead._held, waiting()[0]):
        (runtime.partitions._root / f"{name}.safetensors").unlink()
    held_device.go.set()
    status = [await ended(runtime, submit) for submit in held_device.submits]
    assert [end.state for end in status] == [WorkloadState.SUCCEEDED, WorkloadState.FAILED]
    assert status[1].reason == PartitionUnreadable.code
    assert runtime.ahead.live_bytes == runtime.partitions.live_bytes == 0


async def test_a_read_ahead_that_fails_once_costs_nothing_but_its_time(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, failed = PartitionStore.open, []

    def open_(store: PartitionStore, partition_id: str) -> Any:
        if threading.current_thread().name.startswith("ahead"):
            failed.append(partition_id)
            raise PartitionUnreadable("planted")
        return plain(store, partition_id)

    monkeypatch.setattr(PartitionStore, "open", open_)
    submit = submit_message(binding, steps=6, **QUIET)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
    assert failed


async def test_a_payload_altered_between_reading_and_its_step_is_noticed(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what the equality above would not miss."""
    submit = submit_message(binding, steps=4, **QUIET)
    losses = []
    for planted in (False, True):
        plain = SftSlice.read

        def read(part: SftSlice, job: MountedJob, arrays: Any, metadata: Any, planted: bool = planted) -> Any:
            if planted:
                arrays = arrays | {"actions": arrays["actions"] + 0.01}
            return plain(part, job, arrays, metadata)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(SftSlice, "read", read)
            async with running(make_config(tmp_path / str(planted), datasets)) as runtime:
                await runtime.master.submit(submit)
                await ended(runtime, submit)
                losses.append(metric(events_of(runtime, "job"), "train/loss"))
    assert losses[0] != losses[1]
