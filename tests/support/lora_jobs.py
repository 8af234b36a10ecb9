"""Policies with LoRA that jobs start from, and what a runtime really computed for whoever played them."""

import asyncio
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, equal

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.inference.messages import Mode, PredictRequest
from gpu_runtime.inference.served_policy import Decision, ServedPolicy
from gpu_runtime.inference.step import PredictMember, PredictOutcome, PredictStep
from gpu_runtime.models.adapters import load_adapter
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import LoraSpec
from gpu_runtime.protocol.messages import PolicyBinding, SubmitJob
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.training import slices
from gpu_runtime.training.rl.batch import RlBatch
from tests.support.runtime import make_config, running
from tests.support.runtime_policies import HORIZON, Shelved, learned, reach_message, record_reach

HEAD = {
    "type": "mlp", "tap": "layer:-1", "horizon": HORIZON, "width": 32, "blocks": 1, "pca_dims": 16, "pca_frames": 64,
}  # fmt: skip
LORAS: dict[str, LoraSpec | None] = {
    "adapted": LoraSpec(rank=4, alpha=16),
    "other": LoraSpec(rank=8, alpha=16, target_modules=("q_proj", "v_proj", "down_proj")),
    "frozen": None,
}
"""By name of the policy; all read the last text layer over a camera's picture."""


def lora_message(teacher: SubmitJob, name: str) -> SubmitJob:
    """The same fine-tuning with the named policy's adapter."""
    assert isinstance(teacher.spec, SftJobSpec)
    return teacher.model_copy(
        update={"job_id": name, "spec": teacher.spec.model_copy(update={"lora": LORAS[name], "name": name})}
    )


def make_policies(folder: Path, names: Sequence[str] = tuple(LORAS), *, steps: int = 25) -> dict[str, Shelved]:
    """Train and export each of them in one runtime; on an event loop of its own."""
    datasets = folder / "datasets"
    datasets.mkdir()
    teacher = reach_message(record_reach(datasets, 8), cameras=True, steps=steps, **HEAD)

    async def train() -> dict[str, PolicyBinding]:
        async with running(make_config(folder / "state", datasets)) as runtime:
            return {name: await learned(runtime, lora_message(teacher, name)) for name in names}

    artifacts = folder / "state" / "artifacts"
    return {name: Shelved(binding=bound, artifacts=artifacts) for name, bound in asyncio.run(train()).items()}


def fresh_base() -> Qwen3VLBackbone:
    """One that no runtime has touched."""
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@dataclass(frozen=True, kw_only=True)
class Alone:
    """A policy loaded from its archive alone, on a base of its own."""

    policy: Policy
    base: Qwen3VLBackbone

    @classmethod
    def unpacked(cls, archive: Path, folder: Path, base: Qwen3VLBackbone) -> "Alone":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)
        return cls(policy=load_adapter(folder, base).policy, base=base)

    def rows(self, feature: VLAFeature) -> dict[str, Tensor]:
        """One observation in a forward of its own."""
        taps, lora = [self.policy.taps], self.policy.lora
        if lora is None:
            return self.base.encode([feature], taps)[0]
        return self.base.encode_adapted([feature], taps, [lora], False)[0]

    def act(self, request: PredictRequest) -> np.ndarray:
        """Chunks in real units, one observation after the other."""
        states = request.state_BS
        return np.concatenate(
            [
                self.policy.act([self.rows(feature)], None if states is None else states[at : at + 1], seed=seed)
                for at, (feature, seed) in enumerate(zip(request.features, request.seeds, strict=True))
            ]
        )


@dataclass(kw_only=True)
class Witness:
    """Everything that policies were given and answered, what RL learned from, and who shared a step."""

    answers: list[tuple[PredictRequest, list[Features], Decision]] = field(default_factory=list)
    batches: list[tuple[RlBatch, list[Features]]] = field(default_factory=list)
    groups: list[set[str]] = field(default_factory=list)  # tenants

    @classmethod
    def watching(cls, patch: pytest.MonkeyPatch) -> "Witness":
        seen = cls()
        act, run, update = ServedPolicy.act, PredictStep.run, slices.update

        def acted(self: ServedPolicy, features: list[Features], request: PredictRequest) -> Decision:
            decision = act(self, features, request)
            seen.answers.append((request, list(features), decision))
            return decision

        def ran(self: PredictStep, members: Sequence[PredictMember]) -> PredictOutcome:
            seen.groups.append({member.request.tenant_id for member in members})
            return run(self, members)

        def updated(slot: RlSlot, features: Sequence[Features], batch: RlBatch, *rest: Any, **named: Any) -> Any:
            seen.batches.append((batch, list(features)))
            return update(slot, features, batch, *rest, **named)

        patch.setattr(ServedPolicy, "act", acted)
        patch.setattr(PredictStep, "run", ran)
        patch.setattr(slices, "update", updated)
        return seen

    def differences(self, job_id: str, alone: Alone) -> list[str]:
        """What a job's policy was given or answered otherwise than alone; actions where it doesn't explore."""
        found = []
        for number, (request, features, decision) in enumerate(self.answers):
            if request.job_id != job_id:
                continue
            if not all(_same(rows, alone.rows(one)) for rows, one in zip(features, request.features, strict=True)):
                found.append(f"features {number}")
            if request.mode is Mode.EVAL and not np.array_equal(decision.actions_BHA, alone.act(request)):
                found.append(f"actions {number}")
        return found

    def answered(self, job_id: str) -> int:
        """Chunks of a job."""
        return sum(len(request.features) for request, _, _ in self.answers if request.job_id == job_id)


def unlike(batch: RlBatch, features: Sequence[Features], alone: Alone) -> list[int]:
    """Chunks of a batch that were trained on other features than the policy's own."""
    queries = alone.policy.query_tokens
    return [at for at, rows in enumerate(features) if not _same(rows, alone.rows(batch.feature(at, queries)))]


def _same(one: Features, other: Features) -> bool:
    return one.keys() == other.keys() and all(equal(one[tap], other[tap]) for tap in one)
