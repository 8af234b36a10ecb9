"""Reinforcement learning as a workload: actor and critic on their base, the loop, the improved adapter."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.models.manifest import AdapterManifest
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.messages import ArtifactPublished, SubmitJob
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.services.environment_usage import EnvironmentUsage
from gpu_runtime.services.parts import RuntimeParts
from gpu_runtime.services.policies import BoundPolicy, load_policy
from gpu_runtime.services.publishing import ENV_STEPS, Publisher
from gpu_runtime.services.running import StoppableRun
from gpu_runtime.services.telling import AttemptTeller
from gpu_runtime.services.training_mount import TrainingMount
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.queue import run_in
from gpu_runtime.workflows.rl import RlWorkflow


@dataclass(slots=True, kw_only=True)
class RlWorkload:
    """See ``workload.Workload``."""

    submit: SubmitJob
    workflow: RlWorkflow
    mount: TrainingMount
    publisher: Publisher
    parent: AdapterManifest
    warnings: tuple[str, ...] = ()
    _running: StoppableRun = field(init=False, default_factory=StoppableRun)

    @property
    def step(self) -> int:
        return self.workflow.job.slot.step

    @property
    def total_steps(self) -> int:
        return self.submit.spec.total_steps

    async def start(self) -> None:
        self.workflow.service.set_weight(self.submit.tenant_id, self.submit.tenant_weight)
        await self.mount.open()

    async def run(self) -> None:
        await self._running.run(self.workflow.run())

    def stop(self, reason: str) -> None:
        self.mount.stop(reason)
        self._running.stop()

    async def save(self) -> None:
        await self.mount.save()

    async def publish(self) -> tuple[ArtifactPublished, ...]:
        """The adapter, once the last step is in the journal."""
        await self.mount.close()
        return (await self.publisher.publish_rl(self.submit, self.workflow.job, self.parent),)

    async def keep(self) -> tuple[ArtifactPublished, ...]:
        """The adapter of the version that was reached; none before the first, which is the policy it started from.

        After a restart that is the newest checkpoint's: playing again could end elsewhere.
        """
        await self.mount.settled()
        return await self.publish() if self.step else ()

    async def close(self) -> None:
        await self.mount.close()


def mount_rl(submit: SubmitJob, parts: RuntimeParts, resumed: bool) -> RlWorkload:
    """Load the policy, and the newest checkpoint if there is one; blocks on files.

    Raises PolicyUnusable, AdapterError, CheckpointError, HeadConfigurationError.
    """
    spec, binding = submit.spec, submit.policy
    assert isinstance(spec, RlJobSpec), spec.kind
    assert binding is not None, "checked by the message"
    policy = load_policy(binding, parts.artifacts, parts.bases)
    slot, warnings = _slot(submit, spec, policy, parts)
    job = _job(submit, slot, policy, warnings)
    journal = parts.publisher.journal
    env_steps = journal.metric(submit.job_id, submit.attempt, ENV_STEPS, slot.step)
    known = journal.workload(submit.job_id, submit.attempt)
    workflow = RlWorkflow(
        spec=spec,
        job=job,
        queue=parts.queue,
        service=parts.inference,
        pool=parts.pool,
        rollouts=parts.rollouts,
        tell=AttemptTeller(submit=submit, durability=parts.durability),
        meter=EnvironmentUsage(submit=submit, durability=parts.durability),
        freeze=_freezer(slot, policy, parts),
        readers=parts.readers,
        resumed=resumed,
        reached=0 if known is None else known.step,
        env_steps=int(env_steps or 0),
    )
    return RlWorkload(
        submit=submit,
        workflow=workflow,
        mount=TrainingMount(job=job, weight=submit.tenant_weight, training=parts.training, queue=parts.queue),
        publisher=parts.publisher,
        parent=policy.adapter.manifest,
        warnings=warnings,
    )


def _job(submit: SubmitJob, slot: RlSlot, policy: BoundPolicy, warnings: tuple[str, ...]) -> MountedJob:
    """As the trainer knows it; what came from a checkpoint is saved already."""
    assert isinstance(submit.spec, RlJobSpec), submit.spec.kind
    job = MountedJob(
        job_id=submit.job_id,
        attempt=submit.attempt,
        tenant_id=submit.tenant_id,
        slot=slot,
        backbone=policy.backbone,
        checkpoint_every=submit.spec.training.checkpoint_every,
        warnings=warnings,
    )
    job.saved_step = slot.step if slot.step else -1
    return job


def _freezer(
    slot: RlSlot, policy: BoundPolicy, parts: RuntimeParts
) -> Callable[[], Awaitable[tuple[int, ServedPolicy]]]:
    """Copies the slot in the thread that trains it, so that no step of it runs meanwhile."""

    def copy() -> tuple[int, ServedPolicy]:
        return slot.policy_version, ServedPolicy.freeze(slot.models, policy.backbone)

    async def freeze() -> tuple[int, ServedPolicy]:
        return await run_in(parts.training.compute, copy)

    return freeze


def _slot(
    submit: SubmitJob, spec: RlJobSpec, policy: BoundPolicy, parts: RuntimeParts
) -> tuple[RlSlot, tuple[str, ...]]:
    """The slot, and what its tenant should know about where it comes from."""
    backbone = policy.backbone
    options: dict[str, Any] = {"tap_width": backbone.tap_width, "device": backbone.info.device, "base": backbone}
    loaded = parts.checkpoints.load_rl(submit.job_id, submit.attempt, spec=spec, **options)
    if loaded is None:
        return RlSlot.create(policy.adapter.policy, spec), ()
    text = f"a checkpoint cannot be used, training goes on from the one of step {loaded.slot.step}"
    return loaded.slot, tuple(f"{text}: {problem}" for problem in loaded.broken)
