"""A disk that is full or a journal that can't be written: no new work, a clear state, nothing lost."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors import SafetensorError

from gpu_runtime.data.samples import SampleSource
from gpu_runtime.protocol.messages import DatasetBinding, LogWritten, WorkloadState
from gpu_runtime.services.errors import Unavailable
from gpu_runtime.store import durability as durability_module
from gpu_runtime.store import partitions as partitions_module
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.errors import DiskFull, PartitionsFull
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.records import Entry, Write
from gpu_runtime.training.step import DeviceStep
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import ended, events_of, make_config, metric, running, submit_message


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


@contextmanager
def read_only(journal: Journal, state: Path) -> Iterator[None]:
    """Nothing can be written to the journal inside the block."""
    writable = journal._writer
    uri = f"file:{state}/journal.sqlite3?mode=ro"
    with journal._write_lock:
        journal._writer = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        yield
    finally:
        with journal._write_lock:
            journal._writer = writable


def log(text: str) -> Write:
    return Write(entries=(Entry(body=LogWritten(level="info", message=text), occurred_at_us=1),))


async def test_a_full_journal_stops_leases_and_submits_and_loses_nothing(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=30, checkpoint_every=1000, evaluate_every=1000)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        while len(metric(events_of(runtime, "job"), "train/loss")) < 3:
            await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
        runtime.journal.set_max_bytes(1)
        while runtime.durability.problem is None:
            await asyncio.sleep(0.01)
        status = runtime.status()
        assert (status.accepting, status.reason) == (False, "disk_full")
        assert (status.services[0].state, status.services[0].reason) == ("stopped", "disk_full")
        with pytest.raises(Unavailable) as refused:
            await runtime.master.submit(submit_message(binding, job_id="other"))
        assert (refused.value.status, refused.value.body.code) == (503, "disk_full")
        await asyncio.sleep(0.3)  # the step on the device may end
        slot = runtime.training.mounted[0].slot
        stuck_at, written = slot.step, len(metric(events_of(runtime, "job"), "train/loss"))
        await asyncio.sleep(0.3)
        assert slot.step == stuck_at, "a step was begun that could not be written down"
        assert 1 <= stuck_at - written <= 2, "the measured steps are kept, and they are few"
        runtime.journal.set_max_bytes(None)
        assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
        assert runtime.status().accepting
        events = events_of(runtime)
    assert [step for step, _ in metric(events, "train/loss")] == list(range(1, 31))
    billed = [
        line.quantity for e in events if e.body.type == "usage" for line in e.body.lines if "samples" in line.meter
    ]
    assert billed == [4] * 30


async def test_an_idle_runtime_whose_journal_refuses_a_submit_says_so_until_the_journal_works_again(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=1)
    async with running(make_config(tmp_path, datasets)) as runtime:
        with read_only(runtime.journal, tmp_path):
            with pytest.raises(Unavailable) as refused:
                await runtime.master.submit(submit)
            assert (refused.value.status, refused.value.body.code) == (503, "journal_unwritable")
            for _ in range(2):  # at once, and after it was probed in vain
                assert (runtime.status().accepting, runtime.status().reason) == (False, "journal_unwritable")
                assert runtime.status().services[0].state == "stopped"
                await asyncio.sleep(0.2)
        while not runtime.status().accepting:
            await runtime.durability.changed.wait(5)
        await runtime.master.submit(submit)
        assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
        assert [e.body.state for e in events_of(runtime, "job") if e.body.type == "state"].count("accepted") == 1


async def test_a_cancel_that_cannot_be_written_down_says_so_each_time_and_stops_the_job_all_the_same(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=100_000)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        while not metric(events_of(runtime, "job"), "train/loss"):
            await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
        slot = runtime.training.mounted[0].slot
        with read_only(runtime.journal, tmp_path):
            for _ in range(2):
                with pytest.raises(Unavailable, match="readonly"):
                    await runtime.master.cancel("job", 1)
            await asyncio.sleep(0.3)  # the step on the device may end
            stopped_at = slot.step
        await asyncio.gather(*(runtime.master.cancel("job", 1) for _ in range(3)))
        assert (await ended(runtime, submit)).state is WorkloadState.CANCELLED
        assert slot.step == stopped_at
        states = [event.body.state for event in events_of(runtime, "job") if event.body.type == "state"]
    assert states == ["accepted", "starting", "running", "cancelling", "cancelled"]


async def test_a_job_that_waits_for_room_on_the_disk_can_be_cancelled(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = submit_message(binding, steps=100_000)
    async with running(make_config(tmp_path, datasets, min_free_bytes=1)) as runtime:
        await runtime.master.submit(submit)
        while not metric(events_of(runtime, "job"), "train/loss"):
            await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
        monkeypatch.setattr(partitions_module, "free_bytes", lambda _: 0)
        while runtime.durability.problem is None:
            await asyncio.sleep(0.01)
        assert runtime.status().reason == "disk_full"
        await runtime.master.cancel("job", 1)
        assert (await ended(runtime, submit, 5)).state is WorkloadState.CANCELLED
        assert runtime.status().accepting, "nobody needs the room any more"
        assert runtime.partitions.live_bytes == runtime.queue.queue.live_bytes() == 0


async def test_too_little_free_space_stops_new_work_until_there_is_room(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 10
    monkeypatch.setattr(durability_module, "free_bytes", lambda _: free)
    async with running(make_config(tmp_path, datasets, min_free_bytes=1000)) as runtime:
        assert (runtime.status().accepting, runtime.status().reason) == (False, "disk_full")
        with pytest.raises(Unavailable, match="10 bytes free, 1000 must stay free"):
            await runtime.master.submit(submit_message(binding))
        assert events_of(runtime) == []
        free = 10**12
        await runtime.master.submit(submit_message(binding, steps=1))
        assert runtime.status().accepting


async def test_a_write_is_repeated_until_it_works_and_the_trouble_is_visible_meanwhile(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", max_bytes=1)
    durability = Durability(journal, tmp_path)
    heard = asyncio.create_task(durability.changed.wait(5))
    writing = asyncio.create_task(durability.write(log("x" * 100_000)))
    assert await heard
    assert durability.problem.code == "disk_full"
    with pytest.raises(DiskFull):
        await durability.write_now(log("y" * 100_000))
    journal.set_max_bytes(None)
    await writing
    assert durability.problem is None
    assert [len(event.body.message) for event in journal.read(after=0, limit=9)] == [100_000]


async def test_a_file_system_that_refuses_is_named_and_tried_again(tmp_path: Path) -> None:
    durability = Durability(Journal(tmp_path / "j"), tmp_path)
    faults = [
        OSError(28, "No space left on device"),
        OSError(5, "Input/output error"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ]
    codes: list[str] = []

    def action() -> str:
        if durability.problem:
            codes.append(durability.problem.code)
        if faults:
            raise faults.pop(0)
        return "done"

    assert await durability.persist(action) == "done"
    assert codes == ["disk_full", "storage_unwritable", "disk_full"]


async def test_a_fault_that_is_not_the_storages_is_not_tried_again(tmp_path: Path) -> None:
    durability = Durability(Journal(tmp_path / "j"), tmp_path)

    def broken() -> None:
        raise SafetensorError("Error while serializing: a tensor of no known type")

    with pytest.raises(SafetensorError):
        await durability.persist(broken)
    assert durability.problem is None


async def test_a_store_full_of_live_partitions_is_no_trouble_with_the_disk(tmp_path: Path) -> None:
    durability = Durability(Journal(tmp_path / "j"), tmp_path)

    def full() -> None:
        raise PartitionsFull("enough")

    with pytest.raises(PartitionsFull):
        await durability.persist(full)
    assert durability.problem is None


async def test_jobs_whose_batches_hardly_fit_take_turns(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    submits = [submit_message(binding, job_id=f"job-{n}", tenant_id=f"t{n}", steps=6) for n in range(2)]
    limits = {"partition_bytes": 60_000, "partition_bytes_per_tenant": 55_000}  # one fit batch takes 50 kB
    async with running(make_config(tmp_path, datasets, **limits)) as runtime:
        for submit in submits:
            await runtime.master.submit(submit)
        assert [(await ended(runtime, submit)).state for submit in submits] == [WorkloadState.SUCCEEDED] * 2
        assert runtime.partitions.live_bytes == 0


@pytest.mark.parametrize("limit", ["partition_bytes", "partition_bytes_per_tenant"])
async def test_a_batch_that_never_fits_fails_its_job_before_it_is_in_memory_and_says_what_would_help(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SampleSource, "batch", lambda *_: pytest.fail("the batch was read"))
    submit = submit_message(binding)
    async with running(make_config(tmp_path, datasets, **{limit: 40_000})) as runtime:
        await runtime.master.submit(submit)
        status = await ended(runtime, submit)
    assert (status.state, status.reason) == (WorkloadState.FAILED, "partition_too_large")
    assert "fit/0: one batch holds 49152 bytes; allowed: at most 40000" in status.message
    assert "use a smaller batch, image size or number of cameras" in status.message


async def test_a_step_longer_than_its_lease_keeps_the_lease_and_runs_once(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DeviceStep.run

    def slow(step: DeviceStep, members):
        if members[0].work.name == "train/2":
            time.sleep(2.5)
        return original(step, members)

    monkeypatch.setattr(DeviceStep, "run", slow)
    submit = submit_message(binding, steps=3)
    async with running(make_config(tmp_path, datasets, lease_ttl_ms=1000)) as runtime:
        await runtime.master.submit(submit)
        await ended(runtime, submit)
        events = events_of(runtime, "job")
    assert [step for step, _ in metric(events, "train/loss")] == [1, 2, 3]
    assert sum(event.body.type == "usage" and event.body.lines[0].meter == "train.samples" for event in events) == 3
