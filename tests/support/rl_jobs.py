"""Reinforcement-learning jobs on a whole runtime in this process: real queue, trainer, inference and environments."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.environments.reach import ReachEnvironment
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import Event, EventBody
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.protocol.schema import DatasetStatistics, VectorStatistics
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.scheduler.states import TrainingJobState
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.queue import run_in
from gpu_runtime.training.rl.experience import Episode
from gpu_runtime.workflows.ports import EnvironmentUse
from gpu_runtime.workflows.rl import RlWorkflow
from gpu_runtime.workflows.rl_batches import PlayedBatch
from tests.support.environments import REACH, children
from tests.support.faulty_environments import FAULTY_FAMILIES
from tests.support.runtime import MLP, events_of, make_config, metric, shared_bases

WAIT_S = 60.0


def reach_policy(
    backbone: Backbone,
    *,
    cameras: bool = False,
    head: dict[str, Any] | None = None,
    seed: int = 0,
    side: int = 32,
) -> Policy:
    """A fresh policy for reach: on its state alone, or with the camera besides. ``head``: None for a small MLP."""
    schema = ReachEnvironment(size=side).schema()
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": "start",
            "base_model": backbone.info.name,
            "head": head or MLP | {"tap": "vision" if cameras else "layer:0"},
            "dataset": {"id": "d", "image_size": side, "cameras": None if cameras else []},
            "training": {"steps": 1, "batch_size": 4, "seed": seed},
        }
    )
    if not cameras:
        schema = schema.model_copy(update={"cameras": ()})
    statistics = DatasetStatistics(state=_spread(4), action=_spread(2), frames=100)
    policy = Policy(spec=spec, schema=schema, statistics=statistics, tap_width=backbone.tap_width)
    _fit(policy, backbone, side)
    return policy


def _spread(dims: int) -> VectorStatistics:
    """Of values from -1 to 1."""
    return VectorStatistics(
        mean=(0.0,) * dims,
        std=(0.5,) * dims,
        min=(-1.0,) * dims,
        max=(1.0,) * dims,
        q01=(-1.0,) * dims,
        q99=(1.0,) * dims,
    )


def _fit(policy: Policy, backbone: Backbone, side: int) -> None:
    """Statistics of the features of a few starts."""
    world, frames = ReachEnvironment(size=side), []
    for seed in range(16):
        world.reset(seed)
        images = tuple(world.render().values()) if policy.views else ()
        frames.append(VLAFeature(images=images, instruction=world.instruction, query_tokens=policy.query_tokens))
    features = backbone.encode(frames, [policy.taps] * len(frames))
    with torch.no_grad():
        policy.head.fit(features)


def rl_spec(**changes: Any) -> RlJobSpec:
    """PPO on reach, small. ``collection``, ``training`` and ``algorithm`` override fields of theirs."""
    wanted: dict[str, Any] = {
        "kind": "rl",
        "name": "reach",
        "policy": {"artifact": "a"},
        "environment": {"id": REACH},
        "algorithm": {"type": "ppo", "value": {"hidden": [16], "episode_progress": True}},
        "exploration": {"type": "gaussian"},
        "executed_steps": 2,
        "collection": {"seats": 2, "episodes": 4},
        "training": {"iterations": 3, "epochs": 1},
    }
    for name, change in changes.items():
        wanted[name] = wanted[name] | change if isinstance(change, dict) and "type" not in change else change
    return RlJobSpec.model_validate(wanted)


@dataclass(kw_only=True)
class Told:
    """What a workflow told, and used."""

    events: list[EventBody] = field(default_factory=list)
    uses: list[EnvironmentUse] = field(default_factory=list)

    async def tell(self, *bodies: EventBody) -> None:
        self.events += bodies

    async def meter(self, use: EnvironmentUse) -> None:
        self.uses.append(use)

    def metric(self, name: str) -> list[tuple[int, float]]:
        found = [body for body in self.events if body.type == "metrics"]
        return [(body.step, body.values[name]) for body in found if name in body.values]

    def logs(self) -> list[str]:
        return [body.message for body in self.events if body.type == "log"]


@dataclass(kw_only=True)
class Job:
    """One job, mounted, with its workflow."""

    runtime: LocalRuntime
    workflow: RlWorkflow
    told: Told
    batches: list[tuple[Episode, ...]]  # complete ones, in order

    @property
    def mounted(self) -> MountedJob:
        return self.workflow.job

    def watch_publications(self) -> list[int]:
        """Versions as they are published, from now on."""
        policies, found = self.runtime.inference.policies, []
        publish = policies.publish

        def watched(tenant_id: str, slot_id: str, version: int, policy: ServedPolicy) -> None:
            if slot_id == self.mounted.key:
                found.append(version)
            publish(tenant_id, slot_id, version, policy)

        policies.publish = watched  # type: ignore[method-assign]
        return found

    def before_put(self, action: Callable[[], None]) -> None:
        """Do this whenever a batch is complete, before it is offered."""
        queue = self.runtime.queue
        put = queue.put

        async def watched(*arguments: Any) -> None:
            action()
            await put(*arguments)

        queue.put = watched  # type: ignore[method-assign]

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.005)

    def in_state(self, *states: TrainingJobState) -> list[str]:
        jobs = self.runtime.queue.queue.jobs()
        return [job.partition_id for job in jobs if job.job_id == self.mounted.key and job.state in states]

    def events(self) -> list[Event]:
        """What the runtime's services wrote down of this job."""
        return events_of(self.runtime, self.mounted.job_id)

    def trained(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of a metric of the trainer's."""
        return metric(self.events(), name)

    def used(self, meter: str) -> dict[bool, int]:
        """Quantity that is billed (True) and that is not, once inference has written everything down."""
        found = {True: 0, False: 0}
        for event in self.events():
            if event.body.type == "usage":
                found[event.body.billable] += sum(line.quantity for line in event.body.lines if line.meter == meter)
        return found

    async def run(self) -> None:
        """To the end; whatever happens, nothing may be held afterwards."""
        runtime, mounted = self.runtime, self.mounted
        await runtime.training.mount(mounted, weight=1)
        try:
            async with asyncio.timeout(WAIT_S):
                await self.workflow.run()
        finally:
            runtime.queue.stop_job(mounted, reason="ended")
            await runtime.training.unmount(mounted)
            assert runtime.pool.status().seats.get(mounted.tenant_id) is None
            assert runtime.rollouts.held().get(mounted.tenant_id) is None
            assert not [job for job in runtime.queue.queue.jobs() if job.job_id == mounted.key and not job.ended]


class Readers(ThreadPoolExecutor):
    """Makes payloads of batches, and remembers the batches."""

    def __init__(self) -> None:
        super().__init__(1)
        self.batches: list[tuple[Episode, ...]] = []

    def submit(self, action: Any, /, *arguments: Any, **fields: Any) -> Any:
        self.batches += [batch.episodes for batch in arguments if isinstance(batch, PlayedBatch)]
        return super().submit(action, *arguments, **fields)


def make_job(runtime: LocalRuntime, spec: RlJobSpec, *, tenant: str = "alice", **options: Any) -> Job:
    """Not mounted yet."""
    (backbone,) = runtime.bases.values()
    wanted = {name: options.pop(name) for name in ("cameras", "head", "seed") if name in options}
    slot = RlSlot.create(reach_policy(backbone, **wanted), spec)
    slot.step = options.pop("step", 0)
    job = MountedJob(
        job_id=f"job-{tenant}",
        attempt=1,
        tenant_id=tenant,
        slot=slot,
        backbone=backbone,
        checkpoint_every=spec.training.checkpoint_every,
    )

    async def freeze() -> tuple[int, ServedPolicy]:
        def copy() -> tuple[int, ServedPolicy]:
            assert isinstance(job.slot, RlSlot), "made or loaded as one"
            return job.slot.policy_version, ServedPolicy.freeze(job.slot.models, backbone)

        return await run_in(runtime.training.compute, copy)

    told, readers = Told(), Readers()
    workflow = RlWorkflow(
        spec=spec,
        job=job,
        queue=runtime.queue,
        service=runtime.inference,
        pool=runtime.pool,
        rollouts=runtime.rollouts,
        tell=told.tell,
        meter=told.meter,
        freeze=freeze,
        readers=readers,
        **options,
    )
    return Job(runtime=runtime, workflow=workflow, told=told, batches=readers.batches)


@asynccontextmanager
async def rl_runtime(state: Path, **changes: Any) -> AsyncIterator[LocalRuntime]:
    """A runtime that also knows the faulty environments; nothing may be left in it at the end."""
    state.mkdir(parents=True, exist_ok=True)
    config = make_config(state, state, **changes)
    runtime = LocalRuntime(config, shared_bases(config), families=FAULTY_FAMILIES)
    work = asyncio.create_task(runtime.work())
    try:
        yield runtime
        assert runtime.inference.policies.pinned() == 0
        assert runtime.inference.policies.kept() == 0
        assert runtime.partitions.live_bytes == runtime.queue.queue.live_bytes() == 0
        assert runtime.handles.live_bytes == 0
    finally:
        await asyncio.wait_for(runtime.stop(work), 30)
        runtime.close()
    work.result()
    assert children() == []
