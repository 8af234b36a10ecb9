"""Supervised fine-tuning as a workload: a slot on its base, its data, the producer, and the adapter at the end."""

from dataclasses import dataclass, field
from typing import Any

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.samples import SampleSource
from gpu_runtime.features.keys import dataset_name
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.messages import ArtifactPublished, DatasetBinding, SubmitJob
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.services.dataset_admission import dataset_folder
from gpu_runtime.services.parts import RuntimeParts
from gpu_runtime.services.publishing import Publisher
from gpu_runtime.services.training_mount import TrainingMount
from gpu_runtime.training.frames import FrameRows
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.workflows.plan import SftPlan
from gpu_runtime.workflows.sft import SftWorkflow, tokens_per_sample


@dataclass(slots=True, kw_only=True)
class SftWorkload:
    """See ``workload.Workload``."""

    submit: SubmitJob
    workflow: SftWorkflow
    mount: TrainingMount
    publisher: Publisher
    warnings: tuple[str, ...] = field(default=())

    @property
    def step(self) -> int:
        return self.workflow.job.slot.step

    @property
    def total_steps(self) -> int:
        return self.submit.spec.total_steps

    async def start(self) -> None:
        await self.mount.open()

    async def run(self) -> None:
        await self.workflow.run()

    def stop(self, reason: str) -> None:
        self.mount.stop(reason)

    async def save(self) -> None:
        await self.mount.save()

    async def publish(self) -> tuple[ArtifactPublished, ...]:
        """The adapter, once its last step is in the journal."""
        await self.mount.close()
        return (await self.publisher.publish_sft(self.submit, self.workflow),)

    async def keep(self) -> tuple[ArtifactPublished, ...]:
        """The adapter of the step that was reached; none before the first."""
        await self.mount.settled()
        return await self.publish() if self.step else ()

    async def close(self) -> None:
        await self.mount.close()
        if self.workflow.job.frames is not None:
            self.workflow.job.frames.close()


def mount_sft(submit: SubmitJob, parts: RuntimeParts, resumed: bool) -> SftWorkload:
    """Open the dataset and continue from the newest checkpoint, else start fresh. Blocks on files.

    Raises what the dataset, the head or the checkpoint refuse; each has a ``code``.
    """
    spec, binding = submit.spec, submit.dataset
    assert isinstance(spec, SftJobSpec), spec.kind
    assert binding is not None, "checked by the message"
    dataset = parts.verifier.open(dataset_folder(binding, parts.config.datasets), binding.summary)
    source = SampleSource(dataset, spec.dataset, spec.head.horizon, parts.config.cache_bytes)
    slot, warnings = _slot(submit, spec, binding, parts)
    job = MountedJob(
        job_id=submit.job_id,
        attempt=submit.attempt,
        tenant_id=submit.tenant_id,
        slot=slot,
        backbone=parts.bases[spec.base_model],
        checkpoint_every=spec.training.checkpoint_every,
        warnings=warnings,
    )
    job.frames = _frames(job, binding, source, parts)
    job.saved_step = slot.step if slot.step else -1
    texts = _instructions(spec, dataset)
    workflow = SftWorkflow(
        job=job,
        spec=spec,
        plan=SftPlan.of(spec.training, dataset.lengths, slot.fit_frames),
        source=source,
        queue=parts.queue,
        readers=parts.readers,
        tokens_per_sample=tokens_per_sample(job, len(source.cameras), spec.dataset.image_size, texts),
    )
    known = parts.publisher.journal.workload(submit.job_id, submit.attempt)
    place = TrainingMount(
        job=job,
        weight=submit.tenant_weight,
        training=parts.training,
        queue=parts.queue,
        reached=0 if known is None else known.step,
    )
    return SftWorkload(submit=submit, workflow=workflow, mount=place, publisher=parts.publisher, warnings=job.warnings)


def _slot(
    submit: SubmitJob, spec: SftJobSpec, binding: DatasetBinding, parts: RuntimeParts
) -> tuple[Slot, tuple[str, ...]]:
    """The slot, and what its tenant should know about where it comes from."""
    backbone, summary = parts.bases[spec.base_model], binding.summary
    options: dict[str, Any] = {"tap_width": backbone.tap_width, "device": backbone.info.device, "base": backbone}
    loaded = parts.checkpoints.load(submit.job_id, submit.attempt, spec=spec, **options)
    if loaded is not None:
        text = f"a checkpoint cannot be used, training goes on from the one of step {loaded.slot.step}"
        return loaded.slot, tuple(f"{text}: {problem}" for problem in loaded.broken)
    return Slot.create(spec=spec, schema=summary.schema_, statistics=summary.statistics, **options), ()


def _frames(job: MountedJob, binding: DatasetBinding, source: SampleSource, parts: RuntimeParts) -> FrameRows | None:
    """The door to the stored features of the dataset that is bound to the job; None: it computes every feature.

    With an adapter that trains, a frame's features are others after every step.
    """
    if parts.features is None or isinstance(job.slot, RlSlot) or job.slot.lora is not None:
        return None
    view = parts.features.open(dataset_name(binding.version_id, binding.summary.fingerprint))
    return FrameRows(view, source, job.slot.policy.signature(job.backbone).hash, parts.staging)


def _instructions(spec: SftJobSpec, dataset: LeRobotDataset) -> tuple[str, ...]:
    """Every text a prompt of this job can hold."""
    if spec.dataset.instruction is not None:
        return (spec.dataset.instruction,)
    return tuple(set(dataset.tasks.values()) | {episode.task for episode in dataset.episodes})
