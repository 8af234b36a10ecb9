"""Supervised fine-tuning, as the paper's loop: reserve, sample, queue_put, mark_ready."""

import uuid
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.training.mounted import Failure, MountedJob
from gpu_runtime.training.payloads import Payload
from gpu_runtime.training.queue import SharedQueue, run_in
from gpu_runtime.training.work import Frames, Work, image_bytes, pack_batch
from gpu_runtime.workflows.plan import SftPlan


class WorkloadFailed(Exception):
    """The job cannot go on. Only this tenant's job: everybody else is unaffected."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class SftWorkflow:
    """One job's producer. ``readers`` decodes frames; ``tokens_per_sample`` is an upper bound for the queue."""

    job: MountedJob
    spec: SftJobSpec
    plan: SftPlan
    source: SampleSource
    queue: SharedQueue
    readers: Executor
    tokens_per_sample: int

    async def run(self) -> None:
        """Produce everything from the slot's step to the end, and return when all of it has been consumed.

        The queue bounds how far production runs ahead. Returns early when the job is stopped; raises WorkloadFailed
        when it failed.
        """
        slot = self.job.slot
        for work in self.plan.works(start_step=slot.step, needs_fit=slot.needs_fit):
            if self.job.stopped:
                break
            await self._produce(work)
        while self.job.outstanding and not self.job.stopped:
            await self.queue.changed.wait()
        if self.job.failure is not None:
            raise WorkloadFailed(self.job.failure)

    async def _produce(self, work: Work) -> None:
        frames = await run_in(self.readers, self.plan.frames, work)
        partition_id = f"{self.job.job_id}.{self.job.attempt}.{work.name.replace('/', '-')}.{uuid.uuid4().hex[:8]}"
        samples, stored = len(frames), self.job.frames
        keys = [] if stored is None else await run_in(self.readers, stored.keys, frames)
        prompts = self._prompts(samples) if stored is None else stored.missing(keys)
        tokens = prompts * self.tokens_per_sample + max(0, samples - prompts)  # a stored sample: as little as one
        reserved = await self.queue.reserve(
            self.job, work, partition_id, priority=self.spec.priority, samples=samples, tokens=tokens
        )
        if not reserved:
            return
        try:
            await self.queue.put(self.job, partition_id, await self._payload(partition_id, frames, keys))
        except Exception as error:  # e.g. a dataset that breaks while it is read: its own job fails
            reason = getattr(error, "code", None)  # a foreign library's code may be a number
            reason = reason if isinstance(reason, str) else "dataset_unreadable"
            raise WorkloadFailed(Failure(reason=reason, message=f"{work.name}: {error}")) from error

    async def _payload(self, partition_id: str, refs: list[FrameRef], keys: list[FrameKey]) -> Payload:
        """The batch, with images of the samples only whose features could not be taken ahead."""
        stored, pictured = self.job.frames, list(range(len(refs)))
        if stored is not None:
            pictured = await run_in(self.readers, stored.stage, partition_id, keys)
            if partition_id not in self.job.outstanding:  # it ended meanwhile
                stored.drop(partition_id)
        size = image_bytes(len(pictured), len(self.source.cameras), self.spec.dataset.image_size)
        self.queue.refuse_too_large(size)  # before it is held in memory
        batch = await run_in(self.readers, self.source.batch, refs, pictured)
        return pack_batch(batch, None if stored is None else Frames(refs=tuple(refs), pictured=tuple(pictured)))

    def _prompts(self, samples: int) -> int:
        """Prompts that a forward runs: those of words alone repeat, and equal ones run once."""
        if self.source.cameras:
            return samples
        return 1 if self.spec.dataset.instruction is not None else min(samples, len(self.source.dataset.tasks))


def tokens_per_sample(job: MountedJob, views: int, image_size: int, instructions: tuple[str, ...]) -> int:
    """Prompt tokens of the longest sample this job can produce."""
    blank = np.zeros((image_size, image_size, 3), dtype=np.uint8)
    features = (
        VLAFeature(images=(blank,) * views, instruction=text, query_tokens=job.slot.query_tokens)
        for text in instructions
    )
    return max(job.backbone.tokens(feature) for feature in features)
