"""The end of a job that trained: its policy as an artifact that proves itself."""

import functools
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from gpu_runtime.models.export import Provenance
from gpu_runtime.models.manifest import AdapterManifest
from gpu_runtime.models.probe import Probe, probe_frames, probe_observations, run_probe
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.messages import ArtifactPublished, SubmitJob
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.training import TrainingService
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.journal import Journal
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.queue import run_in
from gpu_runtime.workflows.sft import SftWorkflow

ENV_STEPS = "rollout/env_steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Exports policies as they are at the end; what it returns is announced together with the job's end."""

    artifacts: Artifacts
    training: TrainingService
    journal: Journal
    durability: Durability
    files: Executor

    async def publish_sft(self, submit: SubmitJob, workflow: SftWorkflow) -> ArtifactPublished:
        """Save the last policy version, then export it with its own actions on recorded frames as proof."""
        assert submit.dataset is not None, "fine-tuning learns from demonstrations"
        await self.training.save(workflow.job)
        probe = await self.training.platform_work(functools.partial(_probe, workflow))
        metrics = await self._metrics(submit, workflow.job.slot.step)
        provenance = self._provenance(submit, submit.dataset.summary.fingerprint, metrics)
        return await self._export(workflow.job, submit, provenance, probe)

    async def publish_rl(self, submit: SubmitJob, job: MountedJob, parent: AdapterManifest) -> ArtifactPublished:
        """The same after reinforcement learning; the proof are observations of its last batch."""
        spec, slot = submit.spec, job.slot
        assert isinstance(spec, RlJobSpec), spec.kind
        assert isinstance(slot, RlSlot), "made by mount_rl"
        await self.training.save(job)
        prove = functools.partial(probe_observations, slot.policy, job.backbone, slot.observed)
        probe = await self.training.platform_work(prove)
        metrics = await self._metrics(submit, slot.step)
        played = await run_in(None, self.journal.metric, submit.job_id, submit.attempt, ENV_STEPS, slot.step)
        provenance = replace(
            self._provenance(submit, parent.training.dataset_fingerprint, metrics),
            parent=parent.adapter_id,
            environment=spec.environment.id,
            algorithm=spec.algorithm.type,
            env_steps=int(played or 0),
        )
        return await self._export(job, submit, provenance, probe)

    async def _export(
        self, job: MountedJob, submit: SubmitJob, provenance: Provenance, probe: Probe
    ) -> ArtifactPublished:
        export = functools.partial(self.artifacts.publish_adapter, job, submit.spec.name, provenance, probe)
        return await self.durability.persist(export, self.files)

    async def _metrics(self, submit: SubmitJob, step: int) -> dict[str, float]:
        """The last ones, as the journal has them."""
        return await run_in(None, self.journal.metrics, submit.job_id, submit.attempt, step)

    def _provenance(self, submit: SubmitJob, fingerprint: str, metrics: dict[str, float]) -> Provenance:
        """Where the policy came from."""
        return Provenance(
            job_id=submit.job_id,
            tenant_id=submit.tenant_id,
            dataset_fingerprint=fingerprint,
            final_metrics={name: value for name, value in metrics.items() if name.startswith("train/")},
            evaluation={name: value for name, value in metrics.items() if name.startswith("eval/")},
        )


def _probe(workflow: SftWorkflow) -> Probe:
    """The live policy's actions on episode 0, which ``act`` runs unless told otherwise. Uses the device."""
    plan, job = workflow.plan, workflow.job
    frames = probe_frames(plan.lengths[0])
    return run_probe(job.slot.policy, job.backbone, workflow.source, episode=0, frames=frames)
