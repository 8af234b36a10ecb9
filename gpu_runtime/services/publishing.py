"""The end of a successful job: its policy as an artifact that proves itself."""

import functools
from concurrent.futures import Executor
from dataclasses import dataclass

from gpu_runtime.models.export import Provenance
from gpu_runtime.protocol.messages import ArtifactPublished, SubmitJob
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.training import TrainingService
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.journal import Journal
from gpu_runtime.training.queue import run_in
from gpu_runtime.workflows.sft import SftWorkflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Exports final policies; what it returns is announced together with the job's success."""

    artifacts: Artifacts
    training: TrainingService
    journal: Journal
    durability: Durability
    files: Executor

    async def publish(self, submit: SubmitJob, workflow: SftWorkflow) -> ArtifactPublished:
        """Save the last policy version, then export it with its own actions on recorded frames as proof."""
        await self.training.save(workflow.job)
        probe = await self.training.platform_work(functools.partial(self.artifacts.probe, workflow))
        provenance = await self._provenance(submit)
        export = functools.partial(self.artifacts.publish, workflow, provenance, probe)
        return await self.durability.persist(export, self.files)

    async def _provenance(self, submit: SubmitJob) -> Provenance:
        """Where the policy came from; its last metrics as the journal has them."""
        assert submit.dataset is not None, "an adapter of fine-tuning comes from demonstrations"
        step = submit.spec.total_steps
        metrics = await run_in(None, self.journal.metrics, submit.job_id, submit.attempt, step)
        return Provenance(
            job_id=submit.job_id,
            tenant_id=submit.tenant_id,
            dataset_fingerprint=submit.dataset.summary.fingerprint,
            final_metrics={name: value for name, value in metrics.items() if name.startswith("train/")},
            evaluation={name: value for name, value in metrics.items() if name.startswith("eval/")},
        )
