"""A PPO update with the rollout's features under handles, against the same update with its backbone forward.

One turn is the device step of one job: the partition written and opened, features found or computed, all epochs of
minibatches, the optimizer. Plain: nothing is kept, so each distinct observation goes through the base once per update.
The rollout's own forward, which fills the handles, is in neither side: it acts with what it computes either way.
"""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.handles import handle_of
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.models.slots import Slot
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.member import Member
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.rl.batch import RlBatch, pack_rl_batch
from gpu_runtime.training.step import DeviceStep
from gpu_runtime.training.work import Work
from tests.benchmarks.bench_group import make_samples
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.interleaved import interleave
from tests.benchmarks.sft_tenants import IMAGE_SIZE
from tests.support.policies import Problem, make_spec
from tests.support.rl_training import rl_job

CHUNKS, EPOCHS, MINIBATCH = 64, 4, 32
FULL_TURNS = 7
TENANT = "bench"


def measure(backbone: Backbone, setting: Setting) -> Iterator[Figure]:
    """``ppo_handles``; on a CPU both sides' metrics must agree to the last bit."""
    with tempfile.TemporaryDirectory() as folder:
        store, handles = PartitionStore(Path(folder), 2**30), FeatureHandles(2**30)
        plain = _Side(backbone, setting, store, None)
        levers = _Side(backbone, setting, store, handles)
        same = plain.step() == levers.step()
        assert same or setting.device != "cpu", "an update with handles is another than without"
        turns = setting.turns(full=FULL_TURNS)
        times = interleave(plain.step, levers.step, repetitions=turns, device=setting.device)
    yield Figure(
        key="ppo_handles",
        base=backbone.info.name,
        work=f"{CHUNKS} chunks, {EPOCHS} epochs, minibatches of {MINIBATCH}, MLP head: whole update",
        plain=times[0],
        levers=times[1],
        repetitions=turns,
        device=setting.device,
        details={
            "chunks": CHUNKS,
            "epochs": EPOCHS,
            "minibatch": MINIBATCH,
            "image_size": IMAGE_SIZE,
            "bit_equal": same,
        },
    )


class _Side:
    """One job and the device step that trains it; every update sees the same batch."""

    def __init__(
        self, backbone: Backbone, setting: Setting, store: PartitionStore, handles: FeatureHandles | None
    ) -> None:
        self._store, self._numbers, self._kept = store, itertools.count(), handles
        self._step = DeviceStep(store, DeviceClock(setting.device), handles)
        spec = rl_job(
            "ppo", algorithm_options={"target_kl": None}, training={"epochs": EPOCHS, "minibatch_size": MINIBATCH}
        )
        seen = make_samples(np.random.default_rng(0), CHUNKS, ragged=False, size=IMAGE_SIZE)
        problem = Problem()
        imitation = Slot.create(
            spec=make_spec("mlp", tap="layer:-1", width=256),
            schema=problem.schema,
            statistics=problem.statistics,
            tap_width=backbone.tap_width,
            device=setting.device,
        )
        rows, demonstrated = backbone.encode(seen, [imitation.taps] * CHUNKS), problem.batch(CHUNKS)[1]
        imitation.fit(rows, demonstrated)
        self._slot = RlSlot.create(imitation.policy, spec)
        self._job = MountedJob(
            job_id=TENANT, attempt=1, tenant_id=TENANT, slot=self._slot, backbone=backbone, checkpoint_every=10**6
        )
        self._batch = _play(self._slot, backbone, seen, rows, handles)

    def step(self) -> dict[str, float]:
        """One update; its metrics but the share of hits."""
        name = f"{'plain' if self._kept is None else 'kept'}-{next(self._numbers)}"
        self._store.put(name, *pack_rl_batch(self._batch))
        work = Work(purpose=Purpose.TRAIN, step=self._slot.step + 1)
        member = Member(partition_id=name, job=self._job, work=work)  # type: ignore[arg-type]
        self._step.run([member])
        self._store.clear(name)
        assert member.applied, member.failure
        hits = member.metrics.pop("train/feature_hits")
        assert hits == (0 if self._kept is None else 1), hits
        assert member.metrics["train/epochs"] == EPOCHS, member.metrics
        return member.metrics


def _play(
    slot: RlSlot,
    backbone: Backbone,
    seen: list[VLAFeature],
    rows: list[dict[str, torch.Tensor]],
    handles: FeatureHandles | None,
) -> RlBatch:
    """Chunks that the slot plays now on made-up frames, credited at random; ``handles`` keep their features."""
    numbers = np.random.default_rng(1)
    state_BS = Problem().batch(CHUNKS)[1].state_BS
    slot.fit(rows)
    with torch.no_grad():
        _, trace = slot.models.act_with_trace(rows, state_BS, seeds=range(CHUNKS))
        value_N = slot.models.value(rows, state_BS).float().cpu().numpy()
    prefix = slot.policy.signature(backbone).hash
    names = tuple(handle_of(TENANT, prefix, feature) for feature in seen)
    if handles is not None:
        for name, row in zip(names, rows, strict=True):
            handles.put_rows(TENANT, TENANT, name, row)
    return RlBatch(
        images=tuple(np.stack(view) for view in zip(*(feature.images for feature in seen), strict=True)),
        instructions=tuple(feature.instruction for feature in seen),
        handles=names,
        state_NS=state_BS,
        trace={name: value.cpu().numpy() for name, value in trace.items()},
        value_N=value_N,
        advantage_N=numbers.normal(size=CHUNKS).astype(np.float32),
        returns_N=numbers.normal(size=CHUNKS).astype(np.float32),
        mask_NC=np.ones((CHUNKS, slot.models.actor.executed), bool),
        version_N=np.full(CHUNKS, slot.policy_version, np.int64),
        episode_N=np.arange(CHUNKS, dtype=np.int64) // 8,
    )
