"""Jobs that start from a policy, of every kind, on a real runtime: from submit to artifact, and killed in between."""

import asyncio
import os
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.models.adapters import load_adapter
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import PolicyBinding, SubmitJob, WorkloadState
from gpu_runtime.services.errors import InvalidSubmit
from tests.support.books import check_books, written
from tests.support.environments import children
from tests.support.runtime import RuntimeProcess, ended, events_of, make_config, metric, running, shared_bases
from tests.support.runtime_policies import Shelved, artifacts_of, policy_message


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    """Acts on its state alone."""
    return Shelved.make(tmp_path_factory.mktemp("blind"), cameras=False)


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    (tmp_path / "datasets").mkdir()
    return tmp_path / "datasets"


def rl_message(binding: PolicyBinding, *, iterations: int = 3, **changes: Any) -> SubmitJob:
    """PPO on reach, small."""
    spec = {
        "algorithm": {"type": "ppo", "value": {"hidden": [16]}},
        "exploration": {"type": "gaussian"},
        "executed_steps": 2,
        "collection": {"seats": 2, "episodes": 4},
        "training": {"iterations": iterations, "epochs": 1, "checkpoint_every": 1},
    }
    return policy_message(binding, "rl", **(spec | changes))


def nothing_is_held(runtime: LocalRuntime) -> None:
    assert runtime.pool.status().seats == {}
    assert runtime.rollouts.held() == {}
    assert runtime.inference.policies.pinned() == runtime.inference.policies.kept() == 0
    assert runtime.partitions.live_bytes == runtime.queue.queue.live_bytes() == 0
    assert runtime.handles.live_bytes == 0
    assert runtime.training.mounted == ()
    assert not list((runtime.config.state / "jobs").glob("*"))


def environments_are_metered(runtime: LocalRuntime) -> None:
    """What the journal has is what the processes measured, less what each report rounds off."""
    spans = [event.body for event in events_of(runtime) if event.body.type == "span"]
    told = [span.busy_us for span in spans if span.service == "environment"]
    assert told
    assert 0 <= runtime.pool.busy.calls_us - sum(told) <= 3 * len(told)


async def until_step(runtime: LocalRuntime, step: int, job_id: str = "job") -> None:
    async with asyncio.timeout(90):
        while (await runtime.master.status(job_id, 1)).step < step:
            await asyncio.sleep(0.01)


async def test_reinforcement_learning_ends_with_an_adapter_that_the_next_job_starts_from(
    tmp_path: Path, datasets: Path, blind: Shelved
) -> None:
    state = tmp_path / "state"
    submit = rl_message(blind.install(state))
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        status = await ended(runtime, submit, 120)
        assert (status.state, status.step, status.total_steps) == (WorkloadState.SUCCEEDED, 3, 3), status
        nothing_is_held(runtime)
        (adapter,) = artifacts_of(written(state, "job"), "adapter")
        binding = PolicyBinding(
            artifact_id=adapter.artifact_id, sha256=adapter.sha256, base_model=blind.binding.base_model
        )
        follow = policy_message(binding, job_id="follow", episodes=2, videos_per_outcome=0)
        await runtime.master.submit(follow)
        assert (await ended(runtime, follow)).state is WorkloadState.SUCCEEDED
        nothing_is_held(runtime)
        environments_are_metered(runtime)
    (backbone,) = shared_bases(make_config(state, datasets)).values()
    loaded = load_adapter(state / "artifacts" / adapter.artifact_id, backbone)
    parent = load_adapter(blind.artifacts / blind.binding.artifact_id, backbone)
    assert loaded.manifest.training.kind == "rl"
    assert loaded.manifest.training.parent == parent.manifest.adapter_id
    assert loaded.manifest.training.policy_version == 3
    events = written(state, "job")
    played = metric(events, "rollout/env_steps")
    assert [step for step, _ in played] == [1, 2, 3]
    assert loaded.manifest.training.env_steps == played[-1][1]
    assert len(metric(events, "train/policy_loss")) == 3
    check_books(written(state))


async def test_rollouts_become_a_dataset_of_the_tenant(tmp_path: Path, datasets: Path, blind: Shelved) -> None:
    state = tmp_path / "state"
    submit = policy_message(blind.install(state), "rollout", episodes=4, dataset_name="own", only_successes=True)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        status = await ended(runtime, submit, 120)
        assert (status.state, status.step, status.total_steps) == (WorkloadState.SUCCEEDED, 4, 4), status
        nothing_is_held(runtime)
        (published,) = artifacts_of(written(state, "job"), "dataset")
        archive = runtime.artifacts.archive(published.artifact_id)
    assert archive is not None
    assert (published.name, published.media_type) == ("own", "application/zip")
    assert published.manifest["episodes"] == 4
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path / "unpacked")
    dataset = LeRobotDataset.open(tmp_path / "unpacked")
    assert len(dataset.episodes) == 4
    assert dataset.frame_count == published.manifest["frames"]
    check_books(written(state))


@pytest.mark.parametrize("kind", ["rl", "rollout"])
async def test_every_kind_gives_everything_back_when_it_is_cancelled(
    tmp_path: Path, datasets: Path, blind: Shelved, kind: str
) -> None:
    state = tmp_path / "state"
    binding = blind.install(state)
    endless = {
        "rl": rl_message(binding, iterations=5_000),
        "rollout": policy_message(binding, "rollout", episodes=5_000, dataset_name="own"),
    }[kind]
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(endless)
        await until_step(runtime, 2)
        await runtime.master.cancel("job", 1)
        assert (await ended(runtime, endless, 20)).state is WorkloadState.CANCELLED
        nothing_is_held(runtime)
        environments_are_metered(runtime)
    check_books(written(state))


async def test_more_seats_than_there_will_ever_be_are_refused(tmp_path: Path, datasets: Path, blind: Shelved) -> None:
    state = tmp_path / "state"
    submit = rl_message(blind.install(state), collection={"seats": 17, "episodes": 4})
    async with running(make_config(state, datasets)) as runtime:
        with pytest.raises(InvalidSubmit) as refused:
            await runtime.master.submit(submit)
    assert refused.value.body.code == "too_many_seats"
    assert refused.value.body.field == "spec.collection.seats"
    assert str(refused.value) == "seats 17: a tenant can have at most 16 environments at once"


@pytest.mark.parametrize("end", ["kill", "terminate"])
@pytest.mark.parametrize("kind", ["rl", "rollout", "evaluation"])
def test_every_kind_goes_on_after_its_process_ended(
    tmp_path: Path, datasets: Path, blind: Shelved, kind: str, end: str
) -> None:
    """Environment processes end with it; steps and episodes are told once each, and what is redone is free."""
    state = tmp_path / "state"
    binding = blind.install(state)
    submit, steps = {
        "rl": (rl_message(binding, iterations=8), 8),
        "rollout": (policy_message(binding, "rollout", episodes=40, max_attempts=80, dataset_name="own"), 40),
        "evaluation": (policy_message(binding, episodes=60, videos_per_outcome=0), 60),
    }[kind]
    process = RuntimeProcess(state, datasets)
    try:
        process.start()
        assert process.submit(submit).status_code == 202
        process.until(lambda: process.job("job").step >= 2 or None)
        assert process.process is not None
        workers = workers_of(process.process.pid)
        assert workers
        if end == "kill":
            process.kill()
        else:
            assert process.terminate() < 5
            assert "stopped in good order" in (state / "log").read_text()
        process.until(lambda: not any(map(running_worker, workers)) or None, 20)
        (state / "jobs/ended-long-ago/1").mkdir(parents=True)  # by a process that was killed just then
        process.start()
        status = process.until_ended("job")
        assert (status.state, status.step) == (WorkloadState.SUCCEEDED, steps), status
        everything_came_back(process)
        process.terminate()
    finally:
        process.close()
    events = written(state, "job")
    name = {"rl": "train/policy_loss", "rollout": "rollout/episodes", "evaluation": "eval/episodes"}[kind]
    told = Counter(step for step, _ in metric(events, name))
    assert set(told.values()) == {1}
    assert max(told) == steps
    unpaid = {event.body.reason for event in events if event.body.type == "usage" and not event.body.billable}
    assert "redone_after_restart" in unpaid
    check_books(written(state))
    assert children() == []


def everything_came_back(process: RuntimeProcess) -> None:
    """As the runtime says of itself, and as its folder shows."""
    status = process.status()
    assert (status.partition_bytes, status.active_jobs) == (0, 0)
    assert [service.queue_depth for service in status.services] == [0, 0, 0]
    assert [service.seats_used for service in status.services if service.service == "environment"] == [0]
    for folder in ("partitions", "jobs"):
        assert not list((process.state / folder).glob("*")), folder


def workers_of(parent: int) -> list[int]:
    """Environment processes of a runtime process."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if running_worker(pid, parent)]


def running_worker(pid: int, parent: int | None = None) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
        of = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return "environments.worker" in command and parent in (None, of)
