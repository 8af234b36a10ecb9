"""Rollout collection: real environments and predictions, a dataset that validates, and training on it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.validation import validate_dataset
from gpu_runtime.environments.reach import ReachEnvironment
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import WorkloadState
from gpu_runtime.protocol.policy_specs import RolloutJobSpec
from gpu_runtime.workflows.actor import Acting
from gpu_runtime.workflows.rollout import RolloutWorkflow
from gpu_runtime.workflows.rollout_dataset import recorded_schema
from gpu_runtime.workflows.rollout_shelf import EpisodeShelf
from gpu_runtime.workflows.sft import WorkloadFailed
from tests.support.demonstrations import bind
from tests.support.environments import REACH
from tests.support.rl_jobs import Told, reach_policy, rl_runtime
from tests.support.runtime import MLP, ended, submit_message

SIDE = 32


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    async with rl_runtime(tmp_path / "state") as runtime:
        yield runtime


def asked(**changes: Any) -> RolloutJobSpec:
    wanted = {
        "kind": "rollout",
        "name": "more data",
        "policy": {"artifact": "a"},
        "environment": {"id": REACH, "max_steps": 6},
        "dataset_name": "own episodes",
        "episodes": 5,
        "first_seed": 100,
    }
    return RolloutJobSpec.model_validate(wanted | changes)


@dataclass(kw_only=True)
class Collection:
    """One rollout job on a runtime; its policy is served while ``run`` runs."""

    runtime: LocalRuntime
    folder: Path
    spec: RolloutJobSpec
    cameras: bool = True
    told: Told = field(default_factory=Told)

    def __post_init__(self) -> None:
        (self.backbone,) = self.runtime.bases.values()
        self.policy = reach_policy(self.backbone, cameras=self.cameras, side=SIDE)

    async def run(self, workflow: RolloutWorkflow | None = None) -> RolloutWorkflow:
        workflow = workflow or self.workflow()
        policies = self.runtime.inference.policies
        policies.open("alice", "job/1")
        policies.publish("alice", "job/1", 7, ServedPolicy.freeze(self.policy, self.backbone))
        try:
            async with asyncio.timeout(60):
                await workflow.run()
        finally:
            policies.close("alice", "job/1")
            assert self.runtime.pool.status().seats == {}
        return workflow

    async def kept(self) -> int:
        """Episodes on disk once both writing threads are idle: the write of a cancelled task still lands."""
        idle, pool = threading.Barrier(2), self.runtime._pools["files"]
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(pool, idle.wait) for _ in range(idle.parties)))
        return len(EpisodeShelf(self.folder / "episodes").records())

    def workflow(self) -> RolloutWorkflow:
        self.folder.mkdir(parents=True, exist_ok=True)

        async def durable(action: Any) -> Any:
            return await self.runtime.durability.persist(action, self.runtime._pools["files"])

        return RolloutWorkflow(
            spec=self.spec,
            policy=self.policy,
            adapter_id="f" * 64,
            acting=Acting(tenant_id="alice", job_id="job", attempt=1, slot_id="job/1", version=7),
            service=self.runtime.inference,
            pool=self.runtime.pool,
            tell=self.told.tell,
            meter=self.told.meter,
            durable=durable,
            folder=self.folder,
        )


async def test_episodes_become_a_dataset_that_validates_and_on_which_a_job_trains(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    collection = Collection(runtime=runtime, folder=runtime.config.datasets / "job", spec=asked())
    workflow = await collection.run()
    assert workflow.dataset is not None
    report = validate_dataset(workflow.dataset.folder)
    assert report.ok, report.defects
    assert report.summary is not None
    assert (report.summary.episodes, report.summary.frames) == (5, 30)
    assert workflow.dataset.manifest == {
        "episodes": 5,
        "frames": 30,
        "successes": 0,
        "attempts": 5,
        "policy_version": 7,
        "adapter_id": "f" * 64,
        "environment": REACH,
        "dataset_name": "own episodes",
    }
    assert [step for step, _ in collection.told.metric("rollout/episodes")] == [1, 2, 3, 4, 5]
    submit = submit_message(bind(runtime.config.datasets, workflow.dataset.folder), head=MLP, steps=3)
    await runtime.master.submit(submit)
    assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED


async def test_rows_are_what_the_environment_showed_and_was_told_at_every_step(runtime: LocalRuntime) -> None:
    collection = Collection(runtime=runtime, folder=runtime.config.datasets / "job", spec=asked(episodes=2))
    workflow = await collection.run()
    assert workflow.dataset is not None
    dataset = LeRobotDataset.open(workflow.dataset.folder)
    for number, episode in enumerate(dataset.episodes):
        world = ReachEnvironment(size=SIDE)
        state_S = world.reset(100 + number).state_S
        assert episode.task == world.instruction
        states, actions = dataset.states_NS(), dataset.actions_NA()[dataset.rows(number)]
        assert states is not None
        assert len(actions) == 6
        pictures = dataset.frames(number, range(6), dataset.schema.cameras[0].key)
        for step, action_A in enumerate(actions):
            np.testing.assert_allclose(states[dataset.rows(number)][step], state_S, atol=1e-6)
            (shown,) = world.render().values()
            assert np.abs(pictures[step].astype(int) - shown).mean() < 12, "but for the video's losses"
            state_S = world.step(action_A).observation.state_S


async def test_only_successes_are_kept_and_the_others_are_played_and_paid(runtime: LocalRuntime) -> None:
    spec = asked(episodes=3, only_successes=True, environment={"id": "faulty/EasyOdd"}, max_attempts=12)
    collection = Collection(runtime=runtime, folder=runtime.config.datasets / "job", spec=spec, cameras=False)
    workflow = await collection.run()
    assert workflow.dataset is not None
    manifest = workflow.dataset.manifest
    assert manifest["episodes"] == 3
    assert 3 < int(str(manifest["attempts"])) <= 12
    described = json.loads((workflow.dataset.folder / "meta" / "recording.json").read_text())
    assert described["seeds"] == [101, 103, 105]
    report = validate_dataset(workflow.dataset.folder)
    assert report.ok, report.defects
    played = sum(use.steps for use in collection.told.uses)
    assert played > int(str(manifest["frames"]))


async def test_a_policy_that_never_succeeds_ends_the_job_with_a_reason(runtime: LocalRuntime) -> None:
    spec = asked(episodes=2, only_successes=True, max_attempts=4)
    collection = Collection(runtime=runtime, folder=runtime.config.datasets / "job", spec=spec)
    with pytest.raises(WorkloadFailed, match="4 episodes were played, 0 succeeded") as failed:
        await collection.run()
    assert failed.value.failure.reason == "no_episode_kept"
    assert not (collection.folder / "dataset").exists()


async def test_a_resumed_job_keeps_what_was_played_and_redoes_the_rest_at_no_price(runtime: LocalRuntime) -> None:
    collection = Collection(runtime=runtime, folder=runtime.config.datasets / "job", spec=asked(episodes=8))
    workflow = collection.workflow()
    running = asyncio.create_task(collection.run(workflow))
    async with asyncio.timeout(60):
        while workflow.step < 3:
            await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    kept = await collection.kept()
    assert 3 <= kept < 8
    assert not (collection.folder / "dataset").exists()
    first, collection.told = collection.told, Told()
    resumed = await collection.run()
    assert resumed.dataset is not None
    assert resumed.dataset.manifest["episodes"] == resumed.dataset.manifest["attempts"] == 8
    reasons = {use.reason: use.steps for use in collection.told.uses if use.work != "check"}
    assert reasons["redone_after_restart"] == min(2, 8 - kept) * 6
    assert sum(reasons.values()) == (8 - kept) * 6
    assert all(use.reason is None for use in first.uses)
    alone = Collection(runtime=runtime, folder=runtime.config.datasets / "other", spec=asked(episodes=8))
    whole = await alone.run()
    assert whole.dataset is not None
    one, other = LeRobotDataset.open(resumed.dataset.folder), LeRobotDataset.open(whole.dataset.folder)
    for number in range(8):
        np.testing.assert_allclose(
            one.actions_NA()[one.rows(number)], other.actions_NA()[other.rows(number)], atol=1e-4
        )


async def test_a_lost_environment_costs_its_episodes_which_are_played_again(
    runtime: LocalRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = tmp_path / "faults"
    faults.write_bytes(b"x")
    monkeypatch.setenv("FAULTS_FILE", str(faults))
    spec = asked(environment={"id": "faulty/Segfault"}, episodes=4)
    collection = Collection(runtime=runtime, folder=runtime.config.datasets / "job", spec=spec, cameras=False)
    workflow = await collection.run()
    assert workflow.dataset is not None
    assert workflow.dataset.manifest["episodes"] == workflow.dataset.manifest["attempts"] == 4
    assert {use.reason for use in collection.told.uses} == {None, "environment_lost"}
    assert validate_dataset(workflow.dataset.folder).ok


def test_pictures_are_declared_as_they_are_stored_upright() -> None:
    schema = ReachEnvironment(size=SIDE).schema()
    turned = schema.cameras[0].model_copy(update={"rotation_deg": 90, "height": 32, "width": 48})
    (camera,) = recorded_schema(schema.model_copy(update={"cameras": (turned,)})).cameras
    assert (camera.rotation_deg, camera.height, camera.width) == (0, 48, 32)
