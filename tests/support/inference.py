"""Policies, observations and a base for tests of the inference service.

Shapes: B observations, H horizon, A action dims, S state dims, D feature width.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.messages import PredictReply, PredictRequest
from gpu_runtime.inference.policy_store import PolicyStore
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.inference.settings import InferenceSettings
from gpu_runtime.inference.step import PredictStep
from gpu_runtime.inference.usage import PredictRecord
from gpu_runtime.models.actor_critic import ActorCritic
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.exploration import ActorCriticSpec
from gpu_runtime.protocol.messages import BaseModelInfo
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.training.clock import DeviceClock
from tests.support.policies import SMALL_HEADS, Problem

SIDE = 32  # pixels


class FakeBase(Backbone):
    """Features are noise seeded by the sample's own bytes. "explode" breaks any forward it is in."""

    attention = image_processing = prompt_template = "fake"

    def __init__(self, *, name: str = "fake", seconds: float = 0.0, width: int = 16) -> None:
        self.info = BaseModelInfo(
            name=name,
            revision="0" * 64,
            parameters=0,
            hidden_size=width,
            layers=1,
            dtype="float32",
            device="cpu",
            random_weights=True,
        )
        self.seconds, self.width = seconds, width
        self.groups: list[int] = []  # samples of each forward

    def tap_width(self, tap: str) -> int:
        if tap not in ("merged", "query", "vision"):
            raise ValueError(f"tap {tap!r}: allowed are merged, query and vision")
        return self.width

    def tap_rows(self, feature: VLAFeature, tap: str) -> int:
        return feature.query_tokens if tap == "query" else 4

    def tokens(self, feature: VLAFeature) -> int:
        if len(feature.instruction) > 40:
            raise ValueError(f"instruction: {len(feature.instruction)} bytes, allowed: 40")
        return 10 + len(feature.instruction)

    def encode(self, features: Sequence[VLAFeature], taps: Sequence[Any]) -> list[dict[str, torch.Tensor]]:
        self.groups.append(len(features))
        time.sleep(self.seconds)
        if any(feature.instruction == "explode" for feature in features):
            raise RuntimeError("this base cannot read that")
        return [self._rows(feature, asked) for feature, asked in zip(features, taps, strict=True)]

    def _rows(self, feature: VLAFeature, taps: Any) -> dict[str, torch.Tensor]:
        digest = hashlib.sha256(feature.instruction.encode() + feature.images[0].tobytes()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
        rows_LD = torch.randn((16, self.width), generator=generator)
        return {tap: rows_LD[: self.tap_rows(feature, tap)].clone() for tap in taps}


def observation(seed: int, *, words: str = "push", side: int = SIDE, queries: int = 0) -> VLAFeature:
    image = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return VLAFeature(images=(image,), instruction=words, query_tokens=queries)


def make_slot(head: str, backbone: Backbone, *, seed: int = 3, side: int = SIDE, **overrides: Any) -> Slot:
    """A slot on ``backbone``, fitted on random frames if its head wants that, with weights far from zero."""
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": f"small {head}",
            "base_model": backbone.info.name,
            "head": SMALL_HEADS[head] | overrides,
            "dataset": {"id": "synthetic", "image_size": side},
            "training": {"steps": 10, "batch_size": 16, "seed": seed},
        }
    )
    problem = Problem()
    slot = Slot.create(spec=spec, schema=problem.schema, statistics=problem.statistics, tap_width=backbone.tap_width)
    if slot.needs_fit:
        frames = [observation(at, side=side, queries=slot.query_tokens) for at in range(16)]
        slot.fit(backbone.encode(frames, [slot.taps] * 16), problem.batch(16)[1])
    shake(slot, seed)
    return slot


def make_actor_critic(slot: Slot, exploration: str, *, progress: bool = False, seed: int = 4) -> ActorCritic:
    """What reinforcement learning adds to a slot's policy, with weights far from zero."""
    spec = ActorCriticSpec.model_validate(
        {
            "exploration": {"type": exploration},
            "executed_steps": 3,
            "value": {"hidden": (16, 8), "standardize": False, "episode_progress": progress},
        }
    )
    models = ActorCritic(slot.policy, spec, seed=seed)
    with torch.no_grad():
        models.critic.out.weight.mul_(50)
    return models


def shake(slot: Slot, seed: int) -> None:
    """Other weights, in place: what an optimizer step does to them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in slot.policy.head.parameters():
            parameter += torch.randn(parameter.shape, generator=generator) * 0.1


def training_batch(slot: Slot, backbone: Backbone, samples: int = 8) -> tuple[list[Any], SampleBatch]:
    """Random frames with some problem's actions."""
    frames = [observation(100 + at, queries=slot.query_tokens) for at in range(samples)]
    return backbone.encode(frames, [slot.taps] * samples), Problem().batch(samples)[1]


def ask(tenant_id: str = "alice", *, seed: int = 0, count: int = 1, queries: int = 0, **fields: Any) -> PredictRequest:
    """A request of ``count`` random observations with a random state."""
    words = fields.pop("words", "push")
    side = fields.pop("side", SIDE)
    defaults: dict[str, Any] = {
        "job_id": f"job-{tenant_id}",
        "attempt": 1,
        "session_id": f"s{seed}",
        "slot_id": "arm",
        "features": tuple(
            observation(seed + 7919 * at, words=words, side=side, queries=queries) for at in range(count)
        ),
        "state_BS": np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32),
        "seeds": tuple(1_000 * seed + at for at in range(count)),
    }
    return PredictRequest(tenant_id=tenant_id, **defaults | fields)


def ask_oft(tenant: str = "alice", seed: int = 0, **fields) -> PredictRequest:
    return ask(tenant, seed=seed, queries=4, **fields)


def publish(service: InferenceService, tenant: str, policy: ServedPolicy, version: int = 1) -> None:
    """The first version opens the slot."""
    if version == 1:
        service.policies.open(tenant, "arm")
    service.policies.publish(tenant, "arm", version, policy)


async def replies(service: InferenceService, group: Sequence[PredictRequest]) -> list[PredictReply | BaseException]:
    """Each answer, or why there is none."""
    return await asyncio.gather(*(service.predict(request) for request in group), return_exceptions=True)


class Records:
    """A journal's writer in memory; ``gate`` closed, it takes as long as the test wants."""

    def __init__(self) -> None:
        self.written: list[PredictRecord] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, record: PredictRecord) -> None:
        await self.gate.wait()
        self.written.append(record)

    def total(self, field: str) -> int:
        return sum(getattr(record, field) for record in self.written)


def make_service(records: Records, *, handles: FeatureHandles | None = None, keep: int = 2, **knobs: Any):
    """Not running yet."""
    store: PolicyStore[ServedPolicy] = PolicyStore(keep=keep)
    step = PredictStep(DeviceClock("cpu"), handles or FeatureHandles(10**7))
    settings = InferenceSettings(**{"write_every_us": 1_000} | knobs)
    return InferenceService(policies=store, step=step, write=records.write, settings=settings)


@asynccontextmanager
async def running(service: InferenceService) -> AsyncIterator[InferenceService]:
    """Runs until the end of the block; whatever ``run`` raised comes out here."""
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        service.stop()
        await task
    assert service.policies.pinned() == 0, "pins outlived their requests"
    assert service.queue.depth() == 0
