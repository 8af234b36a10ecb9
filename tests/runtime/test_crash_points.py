"""A crash at every single moment at which something becomes durable: what is on disk then is enough to go on."""

import contextlib
import functools
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.models.slot_files import SlotFiles
from gpu_runtime.protocol.messages import DatasetBinding, Event, SubmitJob, WorkloadState
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.store.records import Write
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import MLP, ended, events_of, make_config, metric, running, submit_message

STEPS = 4


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one", episodes=3, length=5))


class Camera:
    """Copies the state folder after each call of a method: what kill -9 at that moment would leave on the disk."""

    def __init__(self, state: Path, album: Path) -> None:
        self.state, self.album, self.armed = state, album, False
        self.one_at_a_time = threading.RLock()  # a picture taken while something else is half written shows no moment

    def after(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            with self.one_at_a_time:
                result = method(*arguments, **options)
                if self.armed:
                    copy = self.album / f"{len(list(self.album.iterdir())):02d}-{name}"
                    ignored = shutil.ignore_patterns("*.tmp")
                    shutil.copytree(self.state, copy, ignore=ignored, copy_function=copy_what_is_there)
                return result

        return wrapped


def copy_what_is_there(source: str, target: str) -> None:
    """A settled partition may go while the picture is taken."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


async def test_a_crash_after_any_write_loses_nothing_and_doubles_nothing(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, album = tmp_path / "state", tmp_path / "album"
    album.mkdir()
    submit = submit_message(
        binding, head=MLP | {"horizon": 1}, steps=STEPS, batch_size=4, checkpoint_every=2, evaluate_every=2
    )
    camera = Camera(state, album)
    with monkeypatch.context() as patch:
        for owner, name in [
            (Journal, "append"),
            (PartitionStore, "put"),
            (SlotFiles, "write"),
            (Artifacts, "publish_adapter"),
        ]:
            patch.setattr(owner, name, camera.after(getattr(owner, name), name))
        async with running(make_config(state, datasets)) as runtime:
            camera.armed = True
            await runtime.master.submit(submit)
            await ended(runtime, submit)
            camera.armed = False
            undisturbed = events_of(runtime)
            weights = adapter(state)
    moments = sorted(album.iterdir())
    assert len(moments) > 20
    assert {"append", "put", "write", "publish_adapter"} == {moment.name.partition("-")[2] for moment in moments}
    for moment in moments:
        async with running(make_config(moment, datasets)) as runtime:
            await runtime.master.submit(submit)
            status = await ended(runtime, submit)
            events = events_of(runtime)
            assert runtime.partitions.live_bytes == 0, moment.name
        assert (status.state, status.step) == (WorkloadState.SUCCEEDED, STEPS), moment.name
        assert summary(events) == summary(undisturbed), moment.name
        assert adapter(moment) == weights, moment.name
        assert list((moment / "partitions").iterdir()) == [], moment.name


def adapter(state: Path) -> bytes:
    return (state / f"artifacts/job-1-v{STEPS}/adapter.safetensors").read_bytes()


def summary(events: list[Event]) -> dict[str, Any]:
    """What a tenant sees and pays; independent of how often something was tried."""
    own = [event for event in events if event.job_id == "job"]
    bills = [e.body for e in own if e.body.type == "usage" and e.body.billable]
    spans = [event.body for event in events if event.body.type == "span"]
    return {
        "states": [event.body.state for event in own if event.body.type == "state"],
        "losses": sorted(metric(own, "train/loss")),
        "evaluations": sorted(metric(own, "eval/action_error")),
        "versions": [event.body.version for event in own if event.body.type == "policy_version"],
        "artifacts": [event.body.artifact_id for event in own if event.body.type == "artifact"],
        "samples": sum(line.quantity for bill in bills for line in bill.lines if line.meter == "train.samples"),
        "bills": len(bills),
        "unattributed": sum(s.busy_us - s.overhead_us - sum(s.shares.values()) for s in spans),
    }


async def test_a_request_that_comes_before_the_old_attempts_are_taken_up_starts_nothing_twice(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = submit_message(binding, steps=2)
    original = Journal.unfinished_workloads

    def slow(journal: Journal) -> Any:
        time.sleep(0.2)
        return original(journal)

    monkeypatch.setattr(Journal, "unfinished_workloads", slow)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        await ended(runtime, submit)
        states = [event.body.state for event in events_of(runtime, "job") if event.body.type == "state"]
    assert states == ["accepted", "starting", "running", "succeeded"]


async def test_an_attempt_of_another_journal_leaves_no_checkpoint_to_a_new_one_of_the_same_name(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=2, checkpoint_every=1)
    for _ in range(2):
        async with running(make_config(tmp_path, datasets)) as runtime:
            await runtime.master.submit(submit)
            await ended(runtime, submit)
            assert [step for step, _ in metric(events_of(runtime, "job"), "train/loss")] == [1, 2]
        for file in tmp_path.glob("journal.sqlite3*"):
            file.unlink()


async def test_what_a_killed_writer_left_half_done_is_swept_at_the_next_start(tmp_path: Path, datasets: Path) -> None:
    halves = ["checkpoints/job/1/.step-0000000003.ab12.tmp", "artifacts/.job-1-v3.ab12.old"]
    for half in halves:
        (tmp_path / half).mkdir(parents=True)
        (tmp_path / half / "head.safetensors").write_bytes(b"half")
    (tmp_path / "artifacts/.job-1-v3.zip.ab12.tmp").write_bytes(b"half")
    async with running(make_config(tmp_path, datasets)):
        assert list((tmp_path / "artifacts").iterdir()) == list((tmp_path / "checkpoints/job/1").iterdir()) == []


async def interrupted(state: Path, datasets: Path, submit: SubmitJob) -> list[Path]:
    """Stop the job in good order after its fourth step; its checkpoints, oldest first."""
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        while (await runtime.master.status("job", 1)).step < 4:
            await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
    return sorted((state / "checkpoints/job/1").iterdir())


def damage(checkpoint: Path, file: str) -> None:
    content = bytearray((checkpoint / file).read_bytes())
    content[len(content) // 2] ^= 1
    (checkpoint / file).write_bytes(content)


@pytest.mark.parametrize("file", ["head.safetensors", "slot.json"])
async def test_a_broken_checkpoint_costs_the_steps_since_the_one_before_it_and_is_told(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, file: str
) -> None:
    submit = submit_message(binding, head=MLP | {"horizon": 1}, steps=12, checkpoint_every=2, evaluate_every=4)
    weights = {}
    for name in ("steady", "damaged"):
        older, newest = await interrupted(tmp_path / name, datasets, submit)
        if name == "damaged":
            damage(newest, file) if file != "slot.json" else (newest / file).write_text("{}")
        async with running(make_config(tmp_path / name, datasets)) as runtime:
            status = await ended(runtime, submit)
            events = events_of(runtime, "job")
        assert (status.state, status.step) == (WorkloadState.SUCCEEDED, 12), status
        assert sorted(step for step, _ in metric(events, "train/loss")) == list(range(1, 13))
        versions = [event.body.version for event in events if event.body.type == "policy_version"]
        assert versions == sorted(set(versions))
        weights[name] = (tmp_path / name / "artifacts/job-1-v12/adapter.safetensors").read_bytes()
    assert weights["steady"] == weights["damaged"]
    told = [event.body for event in events if event.body.type == "log" and newest.name in event.body.message]
    assert [log.level for log in told] == ["warning"]
    assert f"goes on from the one of step {int(older.name.removeprefix('step-'))}:" in told[0].message
    assert (newest.parent / f"broken-{newest.name}").is_dir()


async def test_a_job_of_which_no_checkpoint_is_whole_fails_and_nothing_of_it_is_moved(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, head=MLP | {"horizon": 1}, steps=12, checkpoint_every=2)
    checkpoints = await interrupted(tmp_path, datasets, submit)
    for checkpoint in checkpoints:
        damage(checkpoint, "optimizer.safetensors")
    async with running(make_config(tmp_path, datasets)) as runtime:
        status = await ended(runtime, submit)
    assert (status.state, status.reason) == (WorkloadState.FAILED, "checkpoint_invalid")
    assert f"{checkpoints[-1].name}: optimizer.safetensors is not the file that was written" in status.message
    assert sorted((tmp_path / "checkpoints/job/1").iterdir()) == checkpoints


@pytest.mark.parametrize("dump", [{"format": 99}, {"format": 1}, {"format": 1, "jobs": 3}])
async def test_a_saved_queue_that_cannot_be_read_costs_the_fair_shares_and_no_job(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, dump: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    submit = submit_message(binding, head=MLP | {"horizon": 1}, steps=8, checkpoint_every=2, evaluate_every=4)
    await interrupted(tmp_path, datasets, submit)
    journal = Journal(tmp_path / "journal.sqlite3")
    journal.append(Write(queue=dump))
    journal.close()
    async with running(make_config(tmp_path, datasets)) as runtime:
        assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
        losses = metric(events_of(runtime, "job"), "train/loss")
    assert [step for step, _ in losses] == list(range(1, 9))
    assert "the saved training queue cannot be read" in caplog.text
