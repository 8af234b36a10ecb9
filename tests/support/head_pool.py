"""Tenants with heads of one architecture, and a pool that trains them."""

from typing import Any

import torch

from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.slots import Slot
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.member import Member
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.pool import HeadPool
from gpu_runtime.training.pool_judge import Judge, Way
from gpu_runtime.training.trainer import Learner
from gpu_runtime.training.work import Work
from tests.support.policies import Problem, make_spec, tap_width

Batch = tuple[list[dict[str, torch.Tensor]], SampleBatch]
STACKABLE: dict[str, dict[str, Any]] = {
    "gr00t": {"tap": "layer:-1", "width": 64, "output_width": 64, "layers": 3},
    "mlp": {"width": 64},
    "oft": {"expansion": 4},
}


class Always(Judge):
    """Stacks whatever can be stacked."""

    def way(self, signature: object) -> Way:
        return Way.STACKED


def always_pool() -> HeadPool:
    return HeadPool(DeviceClock("cpu"), judge=Always())


def loop_pool() -> HeadPool:
    return HeadPool(DeviceClock("cpu"), enabled=False)


class Tenants:
    """Each with its own data, seed, rate, clip and number of steps, all from the same numbers every time."""

    def __init__(self, head: str, count: int, **overrides: Any) -> None:
        self.problems = [Problem(seed) for seed in range(count)]
        self.slots = [self._slot(head, index, overrides) for index in range(count)]
        self.jobs = [
            MountedJob(job_id=f"j{i}", attempt=1, tenant_id=f"t{i}", slot=slot, backbone=None, checkpoint_every=9)  # type: ignore[arg-type]
            for i, slot in enumerate(self.slots)
        ]

    def _slot(self, head: str, index: int, overrides: dict[str, Any]) -> Slot:
        problem = self.problems[index]
        spec = make_spec(head, steps=40 + 10 * index, **(STACKABLE[head] | overrides))
        rate = {"lr": 1e-3 * (index + 1), "grad_clip": 0.1 * (index + 1), "warmup_steps": index}
        training = spec.training.model_copy(update={"seed": index})
        spec = spec.model_copy(update={"training": training, "optimizer": spec.optimizer.model_copy(update=rate)})
        slot = Slot.create(spec=spec, schema=problem.schema, statistics=problem.statistics, tap_width=tap_width)
        if slot.needs_fit:
            slot.fit(*problem.batch(slot.fit_frames))
        return slot

    def batch(self, index: int, samples: int = 4) -> Batch:
        """The tenant's next batch; prompts of the layer tap differ in length."""
        features, batch = self.problems[index].batch(samples)
        for place, sample in enumerate(features):
            sample["layer:-1"] = sample["layer:-1"][: 3 + (index + place) % 4]
        return features, batch

    def learner(self, index: int, name: str, batch: Batch) -> Learner:
        member = Member(
            partition_id=name,  # type: ignore[arg-type]
            job=self.jobs[index],
            work=Work(purpose=Purpose.TRAIN, step=1),
            batch=batch[1],
        )
        return Learner(member=member, features=batch[0])

    def learners(self, step: int, present: list[int] | None = None) -> list[Learner]:
        present = list(range(len(self.slots))) if present is None else present
        return [self.learner(i, f"t{i}-{step}", self.batch(i)) for i in present]
