"""Heads on the real frozen base: small settings that learn recorded demonstrations on one slow core.

Measured on one core, batch 16, H 4, 64 px, 300 steps (loss first -> last, action error / mean-action error, ms per
step and tenant, base forward not included):
PushCube 646 frames: mlp .372 -> .09, .051 / .169, 5 ms; gr00t 1.39 -> .19, .068 / .169, 40 ms.
PickCube 956 frames, two cameras: mlp .376 -> .16, .170 / .380, 5 ms; gr00t 1.34 -> .36, .259 / .380, 40 ms.
Real 26-joint robot, 1583 frames: mlp .541 -> .05, .025 / .074; gr00t without dropout 1.40 -> .12, .035 / .074.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.sampler import FrameSampler, split_episodes
from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.data.statistics import dataset_statistics
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.specs import DatasetSelection, SftJobSpec
from tests.support.demonstrations import make_dataset
from tests.support.policies import Problem

SETTINGS: dict[str, dict[str, Any]] = {
    "gr00t": {
        "head": {
            "type": "gr00t",
            "horizon": 4,
            "tap": "vision",
            "width": 128,
            "layers": 4,
            "heads": 4,
            "output_width": 128,
            "future_tokens": 4,
            "dropout": 0.1,
            "noise_draws": 2,
        },
        "optimizer": {"lr": 2e-3, "warmup_steps": 30},
    },
    "mlp": {"head": {"type": "mlp", "horizon": 4}, "optimizer": {"lr": 1e-3, "warmup_steps": 30}},
    "oft": {"head": {"type": "oft", "horizon": 4}, "optimizer": {"lr": 1e-3, "warmup_steps": 30}},
}
STEPS = 100


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Demonstrations that went through the base once, every frame with the taps of every head."""

    dataset: LeRobotDataset
    backbone: Backbone
    features: dict[FrameRef, dict[str, torch.Tensor]]

    def frames(self, episodes: Iterable[int]) -> list[FrameRef]:
        return [FrameRef(episode=e, frame=f) for e in episodes for f in range(self.dataset.lengths[e])]


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Encoded:
    """45 short episodes; the state holds position and goal, as proprioception with a goal does in PickCube."""
    path = tmp_path_factory.mktemp("data") / "push"
    dataset = LeRobotDataset.open(make_dataset(path, episodes=45, length=7, image_size=64, state_dim=4, action_dim=4))
    backbone = load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))
    known = Encoded(dataset=dataset, backbone=backbone, features={})
    refs = known.frames(range(len(dataset.lengths)))
    source = SampleSource(dataset, DatasetSelection(id="push", image_size=64), horizon=4)
    inputs = to_features(source.batch(refs), query_tokens=4)
    known.features.update(zip(refs, backbone.encode(inputs, [{"vision", "query"}] * len(inputs)), strict=True))
    return known


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_small_settings_halve_the_loss_and_beat_the_mean_action_on_held_out_episodes(name: str, encoded: Encoded):
    dataset, tap_width = encoded.dataset, encoded.backbone.tap_width
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": name,
            "base_model": "tiny-qwen3-vl",
            "dataset": {"id": "push", "image_size": 64},
            "training": {"steps": STEPS, "batch_size": 16},
        }
        | SETTINGS[name]
    )
    source = SampleSource(dataset, spec.dataset, spec.head.horizon)
    slot = Slot.create(spec=spec, schema=dataset.schema, statistics=dataset_statistics(dataset), tap_width=tap_width)
    split = split_episodes(len(dataset.lengths), 0.2, seed=0)

    def samples(refs: list[FrameRef]) -> Any:
        return [encoded.features[ref] for ref in refs], source.batch(refs)

    slot.fit(*samples(encoded.frames(split.train)[: slot.fit_frames]))
    sampler = FrameSampler(dataset.lengths, split.train, 16, seed=0)
    losses = [slot.train_step(*samples(sampler.batch(step)), f"p{step}")["loss"] for step in range(STEPS)]
    error = slot.evaluate(*samples(encoded.frames(split.holdout)))
    assert np.mean(losses[-10:]) < 0.5 * losses[0]
    assert error.mean < error.baseline_mean


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["gr00t", "mlp", "oft"])
def test_losses_on_the_gpu_follow_those_on_the_cpu(name: str):
    overrides = {} if name == "oft" else {"dropout": 0.0}  # dropout masks are drawn on the device
    if name == "mlp":
        overrides["input_noise"] = 0.0
    losses = {}
    for device in ("cpu", "cuda"):
        problem = Problem()
        slot = problem.slot(name, device=device, **overrides)
        batches = [problem.batch(8) for _ in range(10)]
        losses[device] = [
            slot.train_step([{k: v.to(device) for k, v in f.items()} for f in features], batch, f"p{i}")["loss"]
            for i, (features, batch) in enumerate(batches)
        ]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-3)
