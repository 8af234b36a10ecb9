"""Tenants that fine-tune a head on one base: real slots, and batches of frames as their datasets would give them.

Shapes: B samples, H actions per sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.schema import Camera, DatasetSchema, DatasetStatistics, VectorFeature, VectorStatistics
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.training.mounted import MountedJob

IMAGE_SIZE = 192
VIEWS_MAX = 3
INSTRUCTION_BYTES = (8, 43)
ACTIONS, STATES = 7, 8
STEPS = 1_000_000  # more than a bench takes
NO_CHECKPOINT = 1_000_000
HEAD = {
    "type": "gr00t", "horizon": 8, "width": 64, "layers": 10, "heads": 4, "output_width": 64, "future_tokens": 4,
    "noise_draws": 1,
}  # fmt: skip
"""A diffusion transformer of 0.68 million parameters behind the tiny base: deep and narrow, as GR00T's is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One job and the frames of its own dataset: ``batch`` is what every step trains on."""

    number: int
    job: MountedJob
    batch: SampleBatch


def make_tenants(backbone: Backbone, *, tenants: int, batch: int, noise_draws: int = 1) -> list[Tenant]:
    """``tenants`` ragged jobs of the same head: one to three cameras each, instructions of different lengths."""
    return [_tenant(backbone, number, batch, noise_draws) for number in range(tenants)]


def _tenant(backbone: Backbone, number: int, samples: int, noise_draws: int) -> Tenant:
    rng = np.random.default_rng(number)
    views = 1 + number % VIEWS_MAX
    slot = _slot(backbone, number, views, noise_draws)
    frames = make_batch(rng, samples, views=views, horizon=slot.spec.head.horizon)
    slot.fit(backbone.encode(to_features(frames), [slot.taps] * samples), frames)
    job = MountedJob(
        job_id=f"job{number}",
        attempt=1,
        tenant_id=f"tenant{number}",
        slot=slot,
        backbone=backbone,
        checkpoint_every=NO_CHECKPOINT,
    )
    return Tenant(number=number, job=job, batch=frames)


def make_batch(rng: np.random.Generator, samples: int, *, views: int, horizon: int) -> SampleBatch:
    """Frames of noise: what a forward costs does not depend on what they show."""
    texts = rng.integers(*INSTRUCTION_BYTES, samples)
    shape = (samples, IMAGE_SIZE, IMAGE_SIZE, 3)
    return SampleBatch(
        images=tuple(rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(views)),
        instructions=tuple("x" * int(length) for length in texts),
        state_BS=rng.normal(size=(samples, STATES)).astype(np.float32),
        actions_BHA=rng.uniform(-1, 1, (samples, horizon, ACTIONS)).astype(np.float32),
        mask_BH=np.ones((samples, horizon), dtype=bool),
    )


def _slot(backbone: Backbone, number: int, views: int, noise_draws: int) -> Slot:
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": f"tenant {number}",
            "base_model": backbone.info.name,
            "head": HEAD | {"noise_draws": noise_draws},
            "dataset": {"id": f"dataset{number}", "image_size": IMAGE_SIZE},
            "training": {"steps": STEPS, "batch_size": 4, "seed": number},
            "optimizer": {"lr": 1e-4 * (1 + number % 4), "warmup_steps": 2},
        }
    )
    return Slot.create(
        spec=spec,
        schema=_schema(views),
        statistics=_statistics(),
        tap_width=backbone.tap_width,
        device=torch.device(backbone.info.device),
    )


def _schema(views: int) -> DatasetSchema:
    return DatasetSchema(
        cameras=tuple(Camera(key=f"view{view}", height=IMAGE_SIZE, width=IMAGE_SIZE) for view in range(views)),
        state=VectorFeature(key="observation.state", names=tuple(f"joint{i}" for i in range(STATES))),
        action=VectorFeature(key="action", names=tuple(f"motor{i}" for i in range(ACTIONS))),
        control_hz=10,
    )


def _statistics() -> DatasetStatistics:
    """Of states that are standard normal and actions between -1 and 1."""
    return DatasetStatistics(state=_spread(STATES, 4.0, 1.0), action=_spread(ACTIONS, 1.0, 0.58), frames=1000)


def _spread(size: int, bound: float, std: float) -> VectorStatistics:
    low, high = (-bound,) * size, (bound,) * size
    return VectorStatistics(mean=(0.0,) * size, std=(std,) * size, min=low, max=high, q01=low, q99=high)


def samples_of(tenants: Sequence[Tenant]) -> int:
    """Frames of one step of all of them."""
    return sum(len(tenant.batch) for tenant in tenants)
