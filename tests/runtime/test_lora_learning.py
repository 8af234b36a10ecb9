"""LoRA learns what a head alone cannot: what the task needs is not where the head looks, until the features move.

The head sees three numbers of each frame, the strongest directions of the frozen features: the colour of the picture,
which is random. What is to be done depends on one word, which moves the frozen features far less.

Shapes: B samples.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.lora.encode import encode_with
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.schema import Camera, DatasetSchema, DatasetStatistics, VectorFeature, VectorStatistics
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.step import DeviceStep, Member
from gpu_runtime.training.work import Work, pack_batch

SIDE, BATCH, STEPS, TAIL = 32, 8, 100, 10
WORDS = {"push": -1.0, "pull": 1.0}  # and the action that each asks for
HEAD = {
    "type": "mlp", "tap": "layer:2", "horizon": 1, "width": 32, "blocks": 1, "pca_dims": 3, "pca_frames": 64,
    "dropout": 0, "input_noise": 0,
}  # fmt: skip
SCHEMA = DatasetSchema(
    cameras=(Camera(key="observation.images.a", height=SIDE, width=SIDE),),
    state=None,
    action=VectorFeature(key="action", names=("x",)),
    control_hz=10,
)
STATISTICS = DatasetStatistics(
    state=None,
    action=VectorStatistics(mean=(0.0,), std=(1.0,), min=(-1.0,), max=(1.0,), q01=(-1.0,), q99=(1.0,)),
    frames=100,
)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.set_num_threads(1)
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


def frames(rng: np.random.Generator, samples: int) -> SampleBatch:
    """Pictures of one random colour each, a random word, and the action that the word asks for."""
    colours_B113 = rng.integers(0, 256, (samples, 1, 1, 3), dtype=np.uint8)
    words = [str(word) for word in rng.choice(list(WORDS), samples)]
    return SampleBatch(
        images=(np.broadcast_to(colours_B113, (samples, SIDE, SIDE, 3)).copy(),),
        instructions=tuple(words),
        state_BS=None,
        actions_BHA=np.array([WORDS[word] for word in words], np.float32)[:, None, None],
        mask_BH=np.ones((samples, 1), bool),
    )


class Learner:
    """A tenant on this task; ``adapts``: with LoRA besides its head."""

    def __init__(self, backbone: Backbone, seed: int, *, adapts: bool) -> None:
        spec = SftJobSpec.model_validate(
            {
                "kind": "sft",
                "name": "words",
                "base_model": "tiny-qwen3-vl",
                "head": HEAD,
                "dataset": {"id": "d", "image_size": SIDE, "use_state": False},
                "training": {"steps": STEPS, "batch_size": BATCH, "seed": seed},
                "optimizer": {"lr": 3e-3, "warmup_steps": 5},
                "lora": {"rank": 4, "alpha": 16} if adapts else None,
            }
        )
        self.backbone = backbone
        self.slot = Slot.create(
            spec=spec, schema=SCHEMA, statistics=STATISTICS, tap_width=backbone.tap_width, base=backbone
        )
        self.losses: list[float] = []
        first = frames(np.random.default_rng(seed), 64)
        self.slot.fit(self.features(first), first)

    def features(self, batch: SampleBatch) -> list[dict[str, torch.Tensor]]:
        inputs, slot = to_features(batch, self.slot.query_tokens), self.slot
        return encode_with(self.backbone, inputs, [slot.taps] * len(inputs), [slot.lora] * len(inputs))

    def error(self) -> float:
        """Mean absolute error on frames that nobody trained on; 1 for whoever can't tell the words apart."""
        batch = frames(np.random.default_rng(10_000), 64)
        predicted_BHA = self.slot.act(self.features(batch), None, seed=0)
        return float(np.abs(predicted_BHA - batch.actions_BHA).mean())


def train_together(learners: list[Learner], folder: Path, seed: int) -> None:
    """The same frames to everybody, every step one group."""
    store, rng, numbers = PartitionStore(folder, 10**8), np.random.default_rng(1_000 + seed), itertools.count()
    step = DeviceStep(store, DeviceClock("cpu"))
    for at in range(STEPS):
        batch, members = frames(rng, BATCH), []
        for index, learner in enumerate(learners):
            name = f"p{next(numbers)}"
            store.put(name, *pack_batch(batch))
            job = MountedJob(
                job_id=f"j{index}",
                attempt=1,
                tenant_id=f"t{index}",
                slot=learner.slot,
                backbone=learner.backbone,
                checkpoint_every=STEPS,
            )
            members.append(Member(partition_id=name, job=job, work=Work(purpose=Purpose.TRAIN, step=at + 1)))
        step.run(members)
        for learner, member in zip(learners, members, strict=True):
            assert member.failure is None, member.failure
            learner.losses.append(member.metrics["train/loss"])
            store.clear(member.partition_id)


@pytest.mark.parametrize("seed", range(3))
def test_lora_and_a_head_learn_a_task_that_the_same_head_alone_does_not(
    seed: int, backbone: Backbone, tmp_path: Path
) -> None:
    alone, adapting = Learner(backbone, seed, adapts=False), Learner(backbone, seed, adapts=True)
    train_together([alone, adapting], tmp_path, seed)
    assert alone.losses[0] == adapting.losses[0], "a fresh adapter changes nothing"
    assert np.mean(alone.losses[-TAIL:]) > 0.7
    assert np.mean(adapting.losses[-TAIL:]) < 0.2
    assert alone.error() > 0.7
    assert adapting.error() < 0.2
