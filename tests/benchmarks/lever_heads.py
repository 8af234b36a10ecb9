"""Eight tenants' diffusion heads in one call: forward, backward and update of a step, the features at hand.

Plain: each tenant's step by itself, with the same kernels and the same fused AdamW. Levers: the pool, with all its
comparisons behind it; which way it chose is in the details. Two figures: prompts of one length, as tenants of one
robot and task family have them, whose conditions share one product as well; and prompts that differ in length.
"""

from collections.abc import Iterator

import numpy as np

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.member import Member
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.pool import HeadPool
from gpu_runtime.training.pool_judge import COMPARED_STEPS, Judge
from gpu_runtime.training.trainer import Learner
from gpu_runtime.training.work import Work
from tests.benchmarks.bench_group import make_samples
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.interleaved import interleave
from tests.support.policies import Problem, make_spec

TENANTS, BATCH = 8, 4
TAP, IMAGE_SIZE = "layer:-1", 64
DIT = {
    "tap": TAP, "width": 64, "layers": 10, "heads": 4, "output_width": 64, "future_tokens": 4, "noise_draws": 1,
    "dropout": 0.2,
}  # fmt: skip
FULL_TURNS = 15


class Side:
    """Tenants and the pool that trains them; every step sees the same batches."""

    def __init__(self, pool: HeadPool, backbone: Backbone, *, ragged: bool) -> None:
        self.pool, problem, device = pool, Problem(), backbone.info.device
        rng = np.random.default_rng(0)
        features = backbone.encode(
            make_samples(rng, TENANTS * BATCH, ragged=ragged, size=IMAGE_SIZE), [frozenset({TAP})] * (TENANTS * BATCH)
        )
        self.jobs, self.data, self.steps = [], [], 0
        for index in range(TENANTS):
            spec = make_spec("gr00t", steps=10_000, **DIT)
            spec = spec.model_copy(update={"training": spec.training.model_copy(update={"seed": index})})
            slot = Slot.create(
                spec=spec,
                schema=problem.schema,
                statistics=problem.statistics,
                tap_width=backbone.tap_width,
                device=device,
            )
            own = features[index * BATCH : (index + 1) * BATCH]
            batch = problem.batch(BATCH)[1]
            slot.fit(own, batch)
            self.data.append((own, batch))
            name = f"t{index}"
            self.jobs.append(
                MountedJob(job_id=name, attempt=1, tenant_id=name, slot=slot, backbone=backbone, checkpoint_every=1)
            )

    @property
    def parameters(self) -> int:
        """Of one head."""
        slot = self.jobs[0].slot
        return sum(parameter.numel() for parameter in slot.policy.head.parameters())

    def step(self) -> list[dict[str, float]]:
        """One step of every tenant; their metrics."""
        self.steps += 1
        work = Work(purpose=Purpose.TRAIN, step=self.steps)
        learners = [
            Learner(
                member=Member(partition_id=f"{job.job_id}/{self.steps}", job=job, work=work, batch=batch),  # type: ignore[arg-type]
                features=features,
            )
            for job, (features, batch) in zip(self.jobs, self.data, strict=True)
        ]
        self.pool.train(learners)
        for learner in learners:
            assert learner.member.applied, learner.member.failure
        return [learner.member.metrics for learner in learners]


def measure(backbone: Backbone, setting: Setting) -> Iterator[Figure]:
    """``fused_dit_8x4``; on a CPU both sides' metrics must agree to the last bit."""
    for ragged in (False, True):
        yield _figure(backbone, setting, ragged=ragged)


def _figure(backbone: Backbone, setting: Setting, *, ragged: bool) -> Figure:
    clock, judge, turns = DeviceClock(setting.device), _Watched(), setting.turns(full=FULL_TURNS)
    plain = Side(HeadPool(clock, enabled=False), backbone, ragged=ragged)
    levers = Side(HeadPool(clock, judge=judge), backbone, ragged=ragged)
    for _ in range(COMPARED_STEPS):
        same = plain.step() == levers.step()
    assert same or setting.device != "cpu", "a step in the pool is another than alone"
    times = interleave(plain.step, levers.step, repetitions=turns, device=setting.device)
    lengths = "ragged" if ragged else "equal"
    return Figure(
        key="fused_dit_8x4",
        base=backbone.info.name,
        work=f"{TENANTS} heads x {BATCH} {lengths}, {plain.parameters / 1e6:.2f}M parameters each: whole step",
        plain=times[0],
        levers=times[1],
        repetitions=turns,
        device=setting.device,
        details={
            "tenants": TENANTS,
            "batch": BATCH,
            "ragged": ragged,
            "head": dict(DIT),
            "way": judge.last,
            "bit_equal": same,
        },
    )


class _Watched(Judge):
    """Remembers what was chosen last."""

    last = ""

    def way(self, signature: object):  # type: ignore[no-untyped-def]
        found = super().way(signature)  # type: ignore[arg-type]
        self.last = str(found)
        return found
