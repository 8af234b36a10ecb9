"""Evaluation jobs on a real runtime: report, films, bills, and what becomes of them when something breaks."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import av
import pytest

from gpu_runtime.environments.errors import LostReason
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import Event, WorkloadState
from gpu_runtime.services.errors import InvalidSubmit
from tests.support.books import check_books, usage_by_meter, written
from tests.support.environments import REACH, children
from tests.support.runtime import RuntimeProcess, ended, events_of, make_config, metric, running
from tests.support.runtime_policies import Shelved, artifacts_of, policy_message


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    """Acts on its state alone."""
    return Shelved.make(tmp_path_factory.mktemp("blind"), cameras=False)


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    (tmp_path / "datasets").mkdir()
    return tmp_path / "datasets"


def logs(events: list[Event]) -> list[str]:
    return [event.body.message for event in events if event.body.type == "log"]


def run_step(runtime: LocalRuntime, job_id: str = "job") -> int | None:
    """Episodes so far; None once it has ended."""
    run = runtime.master._runs.get(f"{job_id}/1")
    return None if run is None else run.status.step


async def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def nothing_is_held(runtime: LocalRuntime) -> None:
    assert runtime.pool.status().seats == {}
    assert runtime.pool.status().waiting == 0
    assert runtime.inference.policies.pinned() == runtime.inference.policies.kept() == 0


async def test_an_evaluation_ends_with_a_report_its_films_and_a_bill_that_adds_up(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), episodes=10, parallel=2, videos_per_outcome=1)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        status = await ended(runtime, submit)
        assert (status.state, status.step, status.total_steps) == (WorkloadState.SUCCEEDED, 10, 10), status
        nothing_is_held(runtime)
        training, inference, environment = runtime.status().services
        (report,) = artifacts_of(events_of(runtime), "evaluation")
        file = runtime.artifacts.file(report.artifact_id)
    events, everything = written(state, "job"), written(state)
    assert file is not None
    assert hashlib.sha256(file.read_bytes()).hexdigest() == report.sha256
    assert report.media_type == "application/json"
    content = json.loads(file.read_text())
    (task,) = content["tasks"]
    assert [episode["seed"] for episode in task["episodes"]] == list(range(50_000, 50_010))
    assert content["overall"]["success_once"]["successes"] >= 8
    assert content["overall"]["success_once"]["low"] < content["overall"]["success_once"]["rate"]
    assert [suite["suite"] for suite in content["suites"]] == ["joynexus"]
    assert content["protocol_hashes"] == [task["protocol_hash"]]
    assert "episodes" not in report.manifest["tasks"][0]
    assert metric(events, "eval/episodes") == [(step, float(step)) for step in range(1, 11)]
    assert metric(events, "eval/success_rate")[-1][1] == content["overall"]["success_once"]["rate"]
    check_books(everything)
    billed = usage_by_meter(events)
    assert billed["env.steps"] == sum(episode["steps"] for episode in task["episodes"])
    assert billed["predict.chunks"] == sum(
        episode["predict"]["predictions"] for episode in task["episodes"] if episode["predict"]
    )
    assert inference.service == "inference"
    assert inference.latency_p95_ms is not None
    assert 0 < inference.busy_share < 1
    assert environment.service == "environment"
    assert 0 < environment.busy_share <= 1
    assert training.busy_share == 0
    assert children() == []


async def test_a_film_of_a_policy_without_cameras_shows_the_task_and_is_published_as_it_is_made(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), episodes=3, videos_per_outcome=1)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        await ended(runtime, submit)
        events = events_of(runtime, "job")
        (video,) = [one for one in artifacts_of(events, "video") if one.manifest["outcome"] == "success"]
        path = runtime.artifacts.file(video.artifact_id)
    order = [event.body.type for event in events if event.body.type in ("artifact", "state")]
    assert order[-2:] == ["artifact", "state"]  # the report, with the success
    assert order.count("artifact") >= 2
    assert video.media_type == "video/mp4"
    assert video.manifest["task"] == REACH
    assert video.manifest["instruction"] == "Move the red dot onto the green square."
    assert path is not None
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert frame[:128].std() > 10  # a picture, not black


async def test_cancelling_in_the_midst_of_an_episode_gives_everything_back(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), episodes=5_000, parallel=2)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        await until(lambda: (run_step(runtime) or 0) >= 3)
        await runtime.master.cancel("job", 1)
        status = await ended(runtime, submit, 20)
        assert (status.state, status.reason) == (WorkloadState.CANCELLED, "cancelled")
        assert 3 <= status.step < 5_000
        nothing_is_held(runtime)
    check_books(written(state))
    assert artifacts_of(written(state), "evaluation") == []


async def test_without_seats_a_job_waits_and_says_why_while_another_tenant_plays(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    binding = blind.install(state)
    first = policy_message(binding, job_id="first", episodes=5_000, parallel=1, videos_per_outcome=0)
    second = policy_message(binding, job_id="second", episodes=2, parallel=1, videos_per_outcome=0)
    other = policy_message(binding, job_id="other", tenant_id="bob", episodes=2, parallel=1, videos_per_outcome=0)
    config = make_config(state, datasets, env_seats_total=2, env_seats_per_tenant=1)
    async with running(config) as runtime:
        await runtime.master.submit(first)
        await until(lambda: (run_step(runtime, "first") or 0) >= 1)
        await runtime.master.submit(second)
        await until(lambda: logs(events_of(runtime, "second")))
        assert (await runtime.master.status("second", 1)).state is WorkloadState.RUNNING
        await runtime.master.submit(other)
        assert (await ended(runtime, other)).state is WorkloadState.SUCCEEDED
        assert (await runtime.master.status("second", 1)).step == 0
        await runtime.master.cancel("first", 1)
        assert (await ended(runtime, second)).state is WorkloadState.SUCCEEDED
        nothing_is_held(runtime)
    told = logs(written(state, "second"))
    assert told[0] == (
        "waiting for environment seats: your own jobs hold as many as you may have; place 1 in the queue"
    )


async def test_a_job_that_waits_for_seats_can_be_cancelled(tmp_path: Path, datasets: Path, blind: Shelved) -> None:
    state = tmp_path / "state"
    binding = blind.install(state)
    first = policy_message(binding, job_id="first", episodes=5_000, parallel=1, videos_per_outcome=0)
    waiting = policy_message(binding, job_id="waiting", episodes=2)
    async with running(make_config(state, datasets, env_seats_total=1)) as runtime:
        await runtime.master.submit(first)
        await until(lambda: (run_step(runtime, "first") or 0) >= 1)
        await runtime.master.submit(waiting)
        await until(lambda: logs(events_of(runtime, "waiting")))
        await runtime.master.cancel("waiting", 1)
        assert (await ended(runtime, waiting, 10)).state is WorkloadState.CANCELLED
        assert runtime.pool.status().waiting == 0
        await runtime.master.cancel("first", 1)
        await ended(runtime, first, 10)
        nothing_is_held(runtime)


async def test_a_killed_environment_process_costs_one_episode_and_is_not_billed(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), episodes=60, parallel=1, videos_per_outcome=0)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        await until(lambda: (run_step(runtime) or 0) >= 2)
        (process,) = runtime.pool._used
        os.kill(process.pid, signal.SIGKILL)
        assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
        assert runtime.pool.status().lost == {LostReason.CRASHED: 1}
        nothing_is_held(runtime)
    events = written(state, "job")
    (report,) = artifacts_of(events, "evaluation")
    (error,) = report.manifest["tasks"][0]["errors"]
    assert error["message"].startswith("environment lost (crashed)")
    assert report.manifest["overall"]["counted"] == report.manifest["overall"]["planned"] == 60
    assert any(f"seed {error['seed']} counts as a failure" in text for text in logs(events))
    unpaid = [event.body for event in events if event.body.type == "usage" and not event.body.billable]
    assert {usage.reason for usage in unpaid} == {"environment_lost"}
    check_books(written(state))


async def test_an_orderly_stop_in_the_midst_of_an_episode_leaves_an_attempt_that_goes_on(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), episodes=40, parallel=2, videos_per_outcome=1)
    config = make_config(state, datasets)
    async with running(config) as runtime:
        await runtime.master.submit(submit)
        await until(lambda: (run_step(runtime) or 0) >= 3)
    assert children() == []
    async with running(config) as runtime:
        assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
    check_one_of_each(state, 40)


def check_one_of_each(state: Path, episodes: int) -> None:
    """Every planned episode once, in the report and in the curves; what was lost with the process billed to nobody."""
    events = written(state, "job")
    (report,) = artifacts_of(events, "evaluation")
    content = json.loads((state / "artifacts" / f"{report.artifact_id}.json").read_text())
    seeds = [episode["seed"] for episode in content["tasks"][0]["episodes"]]
    assert seeds == list(range(50_000, 50_000 + episodes))
    assert [step for step, _ in metric(events, "eval/episodes")] == list(range(1, episodes + 1))
    assert not list((state / "jobs").glob("*")), "what a resumed attempt would have needed is gone"
    videos = [video.artifact_id for video in artifacts_of(events, "video")]
    assert len(videos) == len(set(videos))
    named = [episode["video"] for episode in content["tasks"][0]["episodes"] if episode["video"]]
    assert sorted(named) == sorted(videos)
    assert sorted(path.stem for path in (state / "artifacts").glob("*.mp4")) == sorted(videos)
    unpaid = [event.body for event in events if event.body.type == "usage" and not event.body.billable]
    assert unpaid
    assert {usage.reason for usage in unpaid} == {"redone_after_restart"}
    check_books(written(state))


def test_after_kill_9_finished_episodes_are_not_played_again_and_the_lost_ones_are_free(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), episodes=60, parallel=2, videos_per_outcome=1)
    process = RuntimeProcess(state, datasets)
    try:
        process.start()
        assert process.submit(submit).status_code == 202
        process.until(lambda: process.job("job").step >= 5 or None)
        process.kill()
        before = len((state / "jobs/job/1/episodes.jsonl").read_text().splitlines())
        assert 5 <= before < 60
        (state / "artifacts/job-1-video-killed-before-its-line.mp4").write_bytes(b"a film")
        process.start()
        status = process.until_ended("job")
        assert (status.state, status.step) == (WorkloadState.SUCCEEDED, 60), status
        for name in ("training", "inference", "environment"):
            (found,) = [one for one in process.status().services if one.service == name]
            assert found.queue_depth == 0
        process.terminate()
    finally:
        process.close()
    check_one_of_each(state, 60)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [("archive", "policy_altered"), ("weights", "adapter_file_altered"), ("manifest", "policy_altered")],
)
async def test_an_altered_policy_ends_the_job_with_its_name(
    tmp_path: Path, datasets: Path, blind: Shelved, damage: str, reason: str
) -> None:
    state = tmp_path / "state"
    binding = blind.install(state)
    path = {
        "archive": state / "artifacts" / f"{binding.artifact_id}.zip",
        "weights": state / "artifacts" / binding.artifact_id / "adapter.safetensors",
        "manifest": state / "artifacts" / binding.artifact_id / "manifest.json",
    }[damage]
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    submit = policy_message(binding)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        status = await ended(runtime, submit)
        assert (status.state, status.reason) == (WorkloadState.FAILED, reason)
        nothing_is_held(runtime)


@pytest.mark.parametrize(
    ("binding", "code", "field"),
    [
        ({"artifact_id": "nobody-1-v1"}, "policy_missing", "policy.artifact_id"),
        ({"artifact_id": "../secret"}, "policy_missing", "policy.artifact_id"),
        ({"base_model": "another"}, "policy_base_missing", "policy.base_model"),
    ],
)
async def test_a_policy_that_is_not_here_is_refused_before_anything_begins(
    tmp_path: Path, datasets: Path, blind: Shelved, binding: dict[str, str], code: str, field: str
) -> None:
    state = tmp_path / "state"
    wanted = blind.install(state).model_copy(update=binding)
    async with running(make_config(state, datasets)) as runtime:
        with pytest.raises(InvalidSubmit) as refused:
            await runtime.master.submit(policy_message(wanted))
        assert (refused.value.body.code, refused.value.body.field) == (code, field)
        assert runtime.master.active_jobs == 0


async def test_a_policy_removed_after_it_was_accepted_ends_the_job_with_its_name(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    binding = blind.install(state)
    first = policy_message(binding, job_id="first", episodes=5_000, parallel=1, videos_per_outcome=0)
    submit = policy_message(binding)
    async with running(make_config(state, datasets, max_jobs=1)) as runtime:
        await runtime.master.submit(first)
        await runtime.master.submit(submit)
        await until(lambda: (run_step(runtime, "first") or 0) >= 1)
        (state / "artifacts" / f"{binding.artifact_id}.zip").unlink()
        await runtime.master.cancel("first", 1)
        status = await ended(runtime, submit)
        assert (status.state, status.reason) == (WorkloadState.FAILED, "policy_missing")


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"state": "privileged"}, "unknown_option"),
        ({"id": "joynexus/Nowhere-v0"}, "unknown_environment"),
        ({"id": "gym_pusht/PushT-v0"}, "schema_mismatch"),
    ],
)
async def test_a_policy_that_does_not_fit_moves_nothing_and_the_job_says_why(
    tmp_path: Path, datasets: Path, blind: Shelved, environment: dict[str, str], reason: str
) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), environment=environment)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        status = await ended(runtime, submit)
        assert (status.state, status.reason) == (WorkloadState.FAILED, reason), status
        nothing_is_held(runtime)
    assert usage_by_meter(written(state))["env.steps"] == 0
