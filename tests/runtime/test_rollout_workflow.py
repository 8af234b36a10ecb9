"""Rollout collection: real environments and predictions, a dataset that validates, and training on it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.data.validation import validate_dataset
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import WorkloadState
from gpu_runtime.protocol.policy_specs import RolloutJobSpec
from gpu_runtime.workflows.actor import Acting
from gpu_runtime.workflows.rollout import RolloutWorkflow
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
