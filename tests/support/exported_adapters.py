"""Adapters trained for a moment on recorded demonstrations, and exported as a job would."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.sampler import FrameSampler
from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.data.statistics import dataset_statistics
from gpu_runtime.environments.record import main as record
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.export import Provenance, export_adapter
from gpu_runtime.models.probe import probe_frames, run_probe
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.specs import SftJobSpec

HORIZON, SIZE = 4, 32


@dataclass(frozen=True, kw_only=True)
class Demonstrated:
    """Demonstrations of one environment, every frame encoded once."""

    dataset: LeRobotDataset
    backbone: Backbone
    features: dict[FrameRef, Any]

    @classmethod
    def record(cls, env_id: str, folder: Path, *, episodes: int) -> "Demonstrated":
        """By the scripted expert, seeds from 0."""
        asked = ["--env", env_id, "--episodes", str(episodes), "--out", str(folder), "--size", str(SIZE)]
        assert record(asked) == 0
        dataset = LeRobotDataset.open(folder)
        backbone = load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))
        refs = [FrameRef(episode=e, frame=f) for e, length in enumerate(dataset.lengths) for f in range(length)]
        inputs = to_features(SampleSource(dataset, make_spec().dataset, HORIZON).batch(refs))
        encoded = backbone.encode(inputs, [{"vision"}] * len(inputs))
        return cls(dataset=dataset, backbone=backbone, features=dict(zip(refs, encoded, strict=True)))

    def train(self, steps: int) -> Slot:
        """An MLP head after so many steps; 0: fitted to the features, and random."""
        spec, dataset = make_spec(steps), self.dataset
        source = SampleSource(dataset, spec.dataset, HORIZON)
        statistics = dataset_statistics(dataset)
        slot = Slot.create(spec=spec, schema=dataset.schema, statistics=statistics, tap_width=self.backbone.tap_width)

        def samples(refs: list[FrameRef]) -> Any:
            return [self.features[ref] for ref in refs], source.batch(refs)

        slot.fit(*samples(list(self.features)[: slot.fit_frames]))
        sampler = FrameSampler(dataset.lengths, tuple(range(len(dataset.lengths))), 32, seed=0)
        for step in range(steps):
            slot.train_step(*samples(sampler.batch(step)), f"p{step}")
        return slot

    def export(self, slot: Slot, folder: Path) -> Path:
        source = SampleSource(self.dataset, slot.spec.dataset, HORIZON)
        frames = probe_frames(self.dataset.lengths[0])
        export_adapter(
            slot,
            folder,
            backbone=self.backbone,
            provenance=Provenance(
                job_id="job", tenant_id="alice", dataset_fingerprint="f", final_metrics={}, evaluation={}
            ),
            probe=run_probe(slot.policy, self.backbone, source, episode=0, frames=frames),
        )
        return folder


def make_spec(steps: int = 1) -> SftJobSpec:
    return SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": "short",
            "base_model": "tiny-qwen3-vl",
            "head": {"type": "mlp", "horizon": HORIZON, "pca_dims": 16, "pca_frames": 128, "width": 128},
            "dataset": {"id": "demonstrations", "image_size": SIZE},
            "training": {"steps": max(steps, 1), "batch_size": 32},
            "optimizer": {"lr": 3e-3, "warmup_steps": 10},
        }
    )


def break_head(slot: Slot) -> Slot:
    """Let it answer NaN only."""
    with torch.no_grad():
        for parameter in slot.policy.head.parameters():
            parameter.fill_(float("nan"))
    return slot
