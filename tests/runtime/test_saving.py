"""Checkpoints are written beside the device: steps go on meanwhile, and what is durable never runs ahead of the books.

Everything is one process with the tiny base and a small head.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from gpu_runtime.models.folders import sha256
from gpu_runtime.models.slot_files import SlotFiles
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob, WorkloadState
from gpu_runtime.services import saving
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.services.config import RuntimeConfig
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import ended, events_of, make_config, metric, running, submit_message

EVERY = {"checkpoint_every": 1, "evaluate_every": 1000}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


class Gate:
    """Holds whoever writes a checkpoint until it is opened."""

    def __init__(self) -> None:
        self.opened, self.threads, self.waiting = threading.Event(), set[str](), 0

    def wait(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.waiting += 1
        try:
            assert self.opened.wait(30), "nobody opened the gate"
        finally:
            self.waiting -= 1


@contextmanager
def gated(patch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, plain = Gate(), SlotFiles.write

    def write(files: SlotFiles, folder: Path) -> None:
        gate.wait()
        plain(files, folder)

    with patch.context() as inner:
        inner.setattr(SlotFiles, "write", write)
        try:
            yield gate
        finally:
            gate.opened.set()


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def versions(runtime: LocalRuntime, job_id: str) -> list[int]:
    return [event.body.version for event in events_of(runtime, job_id) if event.body.type == "policy_version"]


async def test_other_steps_run_while_a_checkpoint_waits_for_the_disk_and_never_in_the_compute_thread(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = submit_message(binding, job_id="saver", steps=3, checkpoint_every=2, evaluate_every=1000)
    other = submit_message(binding, job_id="other", tenant_id="b", steps=12, checkpoint_every=1000)
    async with running(make_config(tmp_path, datasets)) as runtime:
        with gated(monkeypatch) as gate:
            await runtime.master.submit(saver)
            await until(lambda: gate.waiting)
            await runtime.master.submit(other)
            await until(lambda: len(metric(events_of(runtime, "other"), "train/loss")) == 12)
            assert versions(runtime, "saver") == []
        for submit in (saver, other):
            assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
        assert versions(runtime, "saver") == [2, 3]
    assert not any(name.startswith("compute") for name in gate.threads), gate.threads


async def test_no_more_slots_than_allowed_are_in_memory_twice(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = 0
    copy = Checkpoints.copy

    def counted(*arguments: object) -> object:
        nonlocal copies
        copies += 1
        return copy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Checkpoints, "copy", counted)
    submits = [submit_message(binding, job_id=f"job{n}", tenant_id=f"t{n}", steps=4, **EVERY) for n in range(4)]
    async with running(make_config(tmp_path, datasets)) as runtime:
        with gated(monkeypatch) as gate:
            for submit in submits:
                await runtime.master.submit(submit)
            await until(lambda: gate.waiting == saving.COPIES_MAX)
            await asyncio.sleep(0.3)
            assert copies == saving.COPIES_MAX
        for submit in submits:
            assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
            assert versions(runtime, submit.job_id) == [1, 2, 3, 4]


async def test_a_checkpoint_is_the_slot_after_its_own_step_though_it_trains_on_meanwhile(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = submit_message(binding, steps=3, checkpoint_every=2, evaluate_every=1000)
    hashes = {}
    for name in ("at_once", "late"):
        async with running(make_config(tmp_path / name, datasets, keep_checkpoints=9)) as runtime:
            with gated(monkeypatch) as gate:
                if name == "at_once":
                    gate.opened.set()
                await runtime.master.submit(submit)
                if name == "late":
                    await until(lambda: len(metric(events_of(runtime, "job"), "train/loss")) == 3)
            await ended(runtime, submit)
        folder = tmp_path / name / "checkpoints/job/1/step-0000000002"
        hashes[name] = {path.name: sha256(path) for path in folder.glob("*.safetensors")}
        assert json.loads((folder / "slot.json").read_text())["step"] == 2
    assert len(hashes["late"]) == 3
    assert hashes["late"] == hashes["at_once"]


async def test_a_checkpoint_is_written_only_when_the_journal_knows_every_step_in_it(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, found = SlotFiles.write, []
    runtimes: list[LocalRuntime] = []

    def write(files: SlotFiles, folder: Path) -> None:
        known = [step for step, _ in metric(events_of(runtimes[0], "job"), "train/loss")]
        found.append((files.document["step"], max(known, default=0)))
        plain(files, folder)

    monkeypatch.setattr(SlotFiles, "write", write)
    submit = submit_message(binding, steps=6, **EVERY)
    async with running(make_config(tmp_path, datasets)) as runtime:
        runtimes.append(runtime)
        await runtime.master.submit(submit)
        await ended(runtime, submit)
    assert [step for step, _ in found] == [1, 2, 3, 4, 5, 6]
    assert all(known >= step for step, known in found), found


async def test_a_cancelled_job_is_not_let_go_before_its_checkpoint_is_written(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = submit_message(binding, steps=1000, **EVERY)
    async with running(make_config(tmp_path, datasets)) as runtime:
        with gated(monkeypatch) as gate:
            await runtime.master.submit(submit)
            await until(lambda: gate.waiting)
            (job,) = runtime.training.mounted
            runtime.queue.stop_job(job, reason="test")
            leaving = asyncio.create_task(runtime.training.unmount(job))
            await asyncio.sleep(0.3)
            assert not leaving.done()
        await asyncio.wait_for(leaving, 30)
        assert job.saved_step >= 1


async def test_a_write_that_fails_for_another_reason_than_the_storage_ends_the_service(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, planted = SlotFiles.write, [LookupError("planted")]

    def broken(files: SlotFiles, folder: Path) -> None:
        if planted:
            raise planted.pop()
        plain(files, folder)

    monkeypatch.setattr(SlotFiles, "write", broken)
    with pytest.raises(LookupError, match="planted"):
        await train_until_it_breaks(make_config(tmp_path, datasets), submit_message(binding, steps=1000, **EVERY))


async def train_until_it_breaks(config: RuntimeConfig, submit: SubmitJob) -> None:
    async with running(config) as runtime:
        await runtime.master.submit(submit)
        await until(lambda: runtime.training._saver._error)


def test_a_copy_of_files_does_not_follow_the_slot() -> None:
    weight = torch.zeros(3)
    files = SlotFiles(tensors={"head.safetensors": {"weight": weight}}, document={})
    copied = files.copied()
    weight.add_(1)
    assert torch.equal(copied.tensors["head.safetensors"]["weight"], torch.zeros(3))
    assert torch.equal(files.tensors["head.safetensors"]["weight"], torch.ones(3))
