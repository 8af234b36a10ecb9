"""A stop that keeps: at the end of the step under way, with everything that was made, also through a kill."""

import asyncio
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.models.adapters import load_adapter
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import DatasetBinding, Event, StopJob, SubmitJob, WorkloadState
from gpu_runtime.services.publishing import Publisher
from gpu_runtime.training.step import DeviceStep
from tests.support.books import check_books, usage_by_meter, written
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import (
    ended,
    events_of,
    make_config,
    metric,
    running,
    shared_bases,
    submit_message,
)
from tests.support.runtime_policies import Shelved, artifacts_of, policy_message

CAP = StopJob(keep=True, reason="budget_reached", message="the job has cost what it may")


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demonstrations")


@pytest.fixture(scope="module")
def binding(demonstrations: Path) -> DatasetBinding:
    return bind(demonstrations, make_dataset(demonstrations / "one"))


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    """Acts on its state alone."""
    return Shelved.make(tmp_path_factory.mktemp("blind"), cameras=False)


async def until_step(runtime: LocalRuntime, step: int) -> None:
    async with asyncio.timeout(90):
        while (await runtime.master.status("job", 1)).step < step:
            await asyncio.sleep(0.01)


def endless(binding: DatasetBinding, **training: Any) -> SubmitJob:
    return submit_message(binding, steps=100_000, **({"checkpoint_every": 1000, "evaluate_every": 1000} | training))


def in_the_midst_of_a_step(monkeypatch: pytest.MonkeyPatch, *, number: int) -> tuple[threading.Event, threading.Event]:
    """(a step is under way, let it go on)."""
    begun, go_on, steps = threading.Event(), threading.Event(), []
    original = DeviceStep._encode

    def slow(self: DeviceStep, members: Any) -> Any:
        steps.append(members)
        if len(steps) == number:
            begun.set()
            assert go_on.wait(20)
        return original(self, members)

    monkeypatch.setattr(DeviceStep, "_encode", slow)
    return begun, go_on


async def test_fine_tuning_finishes_its_step_and_publishes_the_policy_of_that_step(
    tmp_path: Path, demonstrations: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = in_the_midst_of_a_step(monkeypatch, number=8)
    submit = endless(binding)
    async with running(make_config(tmp_path, demonstrations)) as runtime:
        await runtime.master.submit(submit)
        assert await asyncio.to_thread(begun.wait, 60)
        slot = runtime.training.mounted[0].slot
        under_way = slot.step + 1
        status = await runtime.master.cancel("job", 1, CAP)
        assert status.state is WorkloadState.CANCELLING
        go_on.set()
        status = await ended(runtime, submit)
        assert (status.state, status.reason, status.message) == (WorkloadState.CANCELLED, CAP.reason, CAP.message)
        assert runtime.partitions.live_bytes == runtime.queue.queue.live_bytes() == 0
        assert runtime.training.mounted == ()
    events = written(tmp_path, "job")
    (adapter,) = artifacts_of(events, "adapter")
    assert (status.step, adapter.policy_version) == (under_way, under_way), "the step under way is the last one"
    assert [step for step, _ in metric(events, "train/loss")] == list(range(1, under_way + 1))
    assert usage_by_meter(events)["train.samples"] == 4 * under_way, "what was made is paid, and nothing else"
    assert usage_by_meter(events, billable=False) == {}, "no step was thrown away"
    assert events[-1].body.state is WorkloadState.CANCELLED
    assert events[-2].body == adapter, "the artifact is announced with the end"
    (backbone,) = shared_bases(make_config(tmp_path, demonstrations)).values()
    assert load_adapter(tmp_path / "artifacts" / adapter.artifact_id, backbone).manifest.training.steps == under_way
    check_books(written(tmp_path))


async def test_a_policy_kept_at_a_step_is_the_one_that_nobody_disturbed_up_to_that_step(
    tmp_path: Path, demonstrations: Path, binding: DatasetBinding
) -> None:
    submit = endless(binding)
    async with running(make_config(tmp_path, demonstrations)) as runtime:
        await runtime.master.submit(submit)
        await until_step(runtime, 3)
        await runtime.master.cancel("job", 1, CAP)
        steps = (await ended(runtime, submit)).step
        twin = submit.model_copy(update={"job_id": "twin"})
        await runtime.master.submit(twin)
        async with asyncio.timeout(60):
            while not runtime.training.mounted:
                await asyncio.sleep(0)
        runtime.queue.finish_job(runtime.training.mounted[0], step=steps)  # nobody waits for a step under way
        assert (await ended(runtime, twin)).step == steps
        (kept,) = artifacts_of(events_of(runtime, "job"), "adapter")
        (other,) = artifacts_of(events_of(runtime, "twin"), "adapter")
        losses = [metric(events_of(runtime, job_id), "train/loss") for job_id in ("job", "twin")]
    assert losses[0] == losses[1]
    assert _weights(tmp_path, kept.artifact_id) == _weights(tmp_path, other.artifact_id)


def _weights(state: Path, artifact_id: str) -> bytes:
    with zipfile.ZipFile(state / "artifacts" / f"{artifact_id}.zip") as files:
        return files.read("adapter.safetensors")


async def test_the_first_ask_stands_whatever_comes_after_it(
    tmp_path: Path, demonstrations: Path, binding: DatasetBinding
) -> None:
    async with running(make_config(tmp_path, demonstrations)) as runtime:
        for job_id, asks in (("job", (CAP, StopJob(), CAP)), ("other", (StopJob(), CAP))):
            submit = endless(binding).model_copy(update={"job_id": job_id})
            await runtime.master.submit(submit)
            async with asyncio.timeout(60):
                while (await runtime.master.status(job_id, 1)).step < 2:
                    await asyncio.sleep(0.01)
            for ask in asks:
                await runtime.master.cancel(job_id, 1, ask)
            status = await ended(runtime, submit)
            assert (status.state, status.reason) == (WorkloadState.CANCELLED, asks[0].reason)
            assert len(artifacts_of(events_of(runtime, job_id), "adapter")) == int(asks[0].keep)
            assert (await runtime.master.cancel(job_id, 1, CAP)) == status, "an attempt that has ended keeps its end"


async def test_before_the_first_step_there_is_nothing_to_keep(
    tmp_path: Path, demonstrations: Path, binding: DatasetBinding
) -> None:
    waits = endless(binding).model_copy(update={"job_id": "waits"})
    async with running(make_config(tmp_path, demonstrations, max_jobs=1)) as runtime:
        for submit in (endless(binding), waits):
            await runtime.master.submit(submit)
        for submit in (waits, endless(binding)):
            await runtime.master.cancel(submit.job_id, 1, CAP)
            status = await ended(runtime, submit)
            assert (status.state, status.reason, status.step) == (WorkloadState.CANCELLED, CAP.reason, 0)
            assert artifacts_of(events_of(runtime, submit.job_id), "adapter") == []


async def test_what_cannot_be_kept_is_said_and_the_attempt_ends_all_the_same(
    tmp_path: Path, demonstrations: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise ValueError("no such frame")

    monkeypatch.setattr(Publisher, "publish_sft", broken)
    submit = endless(binding)
    async with running(make_config(tmp_path, demonstrations)) as runtime:
        await runtime.master.submit(submit)
        await until_step(runtime, 2)
        await runtime.master.cancel("job", 1, CAP)
        status = await ended(runtime, submit)
        assert (status.state, status.reason) == (WorkloadState.CANCELLED, CAP.reason)
        assert status.message == f"{CAP.message}; what was made could not be kept: ValueError: no such frame"
        assert runtime.training.mounted == ()


def rl_message(blind: Shelved, state: Path) -> SubmitJob:
    spec = {
        "algorithm": {"type": "ppo", "value": {"hidden": [16]}},
        "exploration": {"type": "gaussian"},
        "executed_steps": 2,
        "collection": {"seats": 2, "episodes": 4},
        "training": {"iterations": 5000, "epochs": 1, "checkpoint_every": 1000},
    }
    return policy_message(blind.install(state), "rl", **spec)


def nothing_is_held(runtime: LocalRuntime) -> None:
    assert runtime.pool.status().seats == {}
    assert runtime.rollouts.held() == {}
    assert runtime.inference.policies.pinned() == runtime.inference.policies.kept() == 0
    assert runtime.partitions.live_bytes == runtime.queue.queue.live_bytes() == 0
    assert runtime.training.mounted == ()
    assert not list((runtime.config.state / "jobs").glob("*"))


async def test_reinforcement_learning_keeps_the_version_of_the_update_under_way(
    tmp_path: Path, blind: Shelved, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    submit = rl_message(blind, state)
    begun, go_on = in_the_midst_of_a_step(monkeypatch, number=2)
    async with running(make_config(state, tmp_path)) as runtime:
        await runtime.master.submit(submit)
        assert await asyncio.to_thread(begun.wait, 90)
        await runtime.master.cancel("job", 1, CAP)
        async with asyncio.timeout(20):
            while runtime.pool.status().seats or runtime.rollouts.held():
                await asyncio.sleep(0.01)  # no rollout goes on meanwhile
        go_on.set()
        status = await ended(runtime, submit)
        assert (status.state, status.reason, status.step) == (WorkloadState.CANCELLED, CAP.reason, 2)
        nothing_is_held(runtime)
    (adapter,) = artifacts_of(written(state, "job"), "adapter")
    assert adapter.policy_version == 2
    (backbone,) = shared_bases(make_config(state, tmp_path)).values()
    manifest = load_adapter(state / "artifacts" / adapter.artifact_id, backbone).manifest
    assert (manifest.training.kind, manifest.training.policy_version) == ("rl", 2)
    check_books(written(state))


async def test_rollouts_that_were_recorded_are_a_dataset(tmp_path: Path, blind: Shelved) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), "rollout", episodes=5000, dataset_name="own")
    async with running(make_config(state, tmp_path)) as runtime:
        await runtime.master.submit(submit)
        await until_step(runtime, 3)
        await runtime.master.cancel("job", 1, CAP)
        status = await ended(runtime, submit)
        assert (status.state, status.reason) == (WorkloadState.CANCELLED, CAP.reason)
        nothing_is_held(runtime)
    _is_a_dataset_of(written(state, "job"), state, tmp_path, episodes=status.step)


def _is_a_dataset_of(events: list[Event], state: Path, folder: Path, *, episodes: int) -> None:
    (published,) = artifacts_of(events, "dataset")
    with zipfile.ZipFile(state / "artifacts" / f"{published.artifact_id}.zip") as zipped:
        zipped.extractall(folder / "unpacked")
    dataset = LeRobotDataset.open(folder / "unpacked")
    assert len(dataset.episodes) == published.manifest["episodes"] == episodes
    assert dataset.frame_count == published.manifest["frames"]
    assert any("of 5000 episodes" in event.body.message for event in events if event.body.type == "log")


async def test_of_an_evaluation_the_films_are_kept_and_no_report_is_made_of_a_part(
    tmp_path: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), episodes=5000, parallel=2, videos_per_outcome=1)
    async with running(make_config(state, tmp_path)) as runtime:
        await runtime.master.submit(submit)
        async with asyncio.timeout(60):
            while not artifacts_of(events_of(runtime, "job"), "video"):
                await asyncio.sleep(0.02)
        await runtime.master.cancel("job", 1, CAP)
        status = await ended(runtime, submit)
        assert (status.state, status.reason) == (WorkloadState.CANCELLED, CAP.reason)
        nothing_is_held(runtime)
        films = artifacts_of(events_of(runtime, "job"), "video")
        assert all(runtime.artifacts.file(film.artifact_id) for film in films)
    events = written(state, "job")
    assert artifacts_of(events, "evaluation") == []
    assert any("a part of the plan makes no report" in e.body.message for e in events if e.body.type == "log")
