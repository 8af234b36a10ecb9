"""From an accepted submit to a slot on a resident base, its data and its workflow."""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.samples import SampleSource
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.messages import SubmitJob
from gpu_runtime.services.admission import dataset_folder
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.services.config import RuntimeConfig
from gpu_runtime.services.datasets import DatasetVerifier
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.queue import SharedQueue
from gpu_runtime.workflows.plan import SftPlan
from gpu_runtime.workflows.sft import SftWorkflow, tokens_per_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounter:
    """Builds workflows; ``mount`` blocks on files and is run off the event loop."""

    config: RuntimeConfig
    bases: Mapping[str, Backbone]
    checkpoints: Checkpoints
    queue: SharedQueue
    verifier: DatasetVerifier
    readers: Executor

    def mount(self, submit: SubmitJob) -> SftWorkflow:
        """Open the dataset and continue from the newest checkpoint, else start fresh.

        Raises what the dataset, the head or the checkpoint refuse; each has a ``code``.
        """
        spec, folder = submit.spec, dataset_folder(submit, self.config.datasets)
        dataset = self.verifier.open(folder, submit.dataset.summary)
        source = SampleSource(dataset, spec.dataset, spec.head.horizon, self.config.cache_bytes)
        slot, warnings = self._slot(submit)
        job = MountedJob(
            job_id=submit.job_id,
            attempt=submit.attempt,
            tenant_id=submit.tenant_id,
            slot=slot,
            backbone=self.bases[spec.base_model],
            checkpoint_every=spec.training.checkpoint_every,
            warnings=warnings,
        )
        job.saved_step = slot.step if slot.step else -1
        return SftWorkflow(
            job=job,
            spec=spec,
            plan=SftPlan.of(spec.training, dataset.lengths, slot.fit_frames),
            source=source,
            queue=self.queue,
            readers=self.readers,
            tokens_per_sample=tokens_per_sample(
                job, len(source.cameras), spec.dataset.image_size, _instructions(submit, dataset)
            ),
        )

    def _slot(self, submit: SubmitJob) -> tuple[Slot, tuple[str, ...]]:
        """The slot, and what its tenant should know about where it comes from."""
        backbone = self.bases[submit.spec.base_model]
        options: dict[str, Any] = {"tap_width": backbone.tap_width, "device": backbone.info.device}
        loaded = self.checkpoints.load(submit.job_id, submit.attempt, spec=submit.spec, **options)
        if loaded is not None:
            text = f"a checkpoint cannot be used, training goes on from the one of step {loaded.slot.step}"
            return loaded.slot, tuple(f"{text}: {problem}" for problem in loaded.broken)
        summary = submit.dataset.summary
        return Slot.create(spec=submit.spec, schema=summary.schema_, statistics=summary.statistics, **options), ()


def _instructions(submit: SubmitJob, dataset: LeRobotDataset) -> tuple[str, ...]:
    """Every text a prompt of this job can hold."""
    if submit.spec.dataset.instruction is not None:
        return (submit.spec.dataset.instruction,)
    return tuple(set(dataset.tasks.values()) | {episode.task for episode in dataset.episodes})
