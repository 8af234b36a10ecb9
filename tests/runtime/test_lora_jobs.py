"""Jobs that train an adapter of the base: in one group as alone, resumed as never stopped, exported as they act."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.sampler import FrameSampler
from gpu_runtime.data.samples import SampleBatch, SampleSource
from gpu_runtime.data.statistics import dataset_statistics
from gpu_runtime.models.adapters import load_adapter
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.checkpoint import load_slot, save_slot
from gpu_runtime.models.errors import AdapterError, CheckpointError
from gpu_runtime.models.export import Provenance, export_adapter
from gpu_runtime.models.lora.encode import encode_with
from gpu_runtime.models.manifest import read_manifest
from gpu_runtime.models.probe import probe_frames, run_probe
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import lora_parameters
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.record import record_step
from gpu_runtime.training.step import DeviceStep, Member
from gpu_runtime.training.work import Work, pack_batch
from tests.support.demonstrations import make_dataset

HEAD = {"type": "oft", "horizon": 4, "blocks": 1, "expansion": 1, "fit_frames": 8}
PROVENANCE = Provenance(
    job_id="job-1", tenant_id="tenant-1", dataset_fingerprint="f" * 64, final_metrics={}, evaluation={}
)
_ids = itertools.count()


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    return LeRobotDataset.open(make_dataset(tmp_path_factory.mktemp("data") / "push", cameras=1))


def spec_of(seed: int, rank: int | None, steps: int = 8) -> SftJobSpec:
    return SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": "adapted",
            "base_model": "tiny-qwen3-vl",
            "head": HEAD,
            "dataset": {"id": "dataset-1", "image_size": 32},
            "training": {"steps": steps, "batch_size": 4, "seed": seed},
            "optimizer": {"lr": 1e-3, "warmup_steps": 0},
            "lora": None
            if rank is None
            else {"rank": rank, "alpha": 2 * rank, "target_modules": ["q_proj", "v_proj"]},
        }
    )


class Tenant:
    """A slot with its own batches."""

    def __init__(self, backbone: Backbone, data: LeRobotDataset, seed: int, rank: int | None) -> None:
        self.backbone, self.spec = backbone, spec_of(seed, rank)
        self.source = SampleSource(data, self.spec.dataset, self.spec.head.horizon)
        self.slot = Slot.create(
            spec=self.spec,
            schema=data.schema,
            statistics=dataset_statistics(data),
            tap_width=backbone.tap_width,
            base=backbone,
        )
        self._sampler = FrameSampler(data.lengths, range(len(data.lengths)), 4, seed=seed)
        first = self.batch(0)
        self.slot.fit(self.features(first), first)

    def batch(self, step: int) -> SampleBatch:
        return self.source.batch(self._sampler.batch(step))

    def features(self, batch: SampleBatch) -> list[dict[str, torch.Tensor]]:
        inputs = to_features(batch, self.slot.query_tokens)
        count = len(inputs)
        return encode_with(self.backbone, inputs, [self.slot.taps] * count, [self.slot.lora] * count)

    def member(self, store: PartitionStore, step: int, purpose: Purpose = Purpose.TRAIN) -> Member:
        number = next(_ids)
        store.put(f"p{number}", *pack_batch(self.batch(step)))
        tenant = f"t{number}"
        job = MountedJob(
            job_id=tenant, attempt=1, tenant_id=tenant, slot=self.slot, backbone=self.backbone, checkpoint_every=9
        )
        return Member(partition_id=f"p{number}", job=job, work=Work(purpose=purpose, step=step + 1))

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.slot.named_parameters().items()}


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path / "partitions", 10**8)


def device_step(store: PartitionStore) -> DeviceStep:
    return DeviceStep(store, DeviceClock("cpu"))


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


CASES = [(1, 4), (2, 4), (3, 2), (4, 8), (5, None), (6, None)]  # seed, rank


def train(store: PartitionStore, tenants: list[Tenant], steps: int) -> list[Member]:
    found: list[Member] = []
    for at in range(steps):
        found = [tenant.member(store, at) for tenant in tenants]
        device_step(store).run(found)
        assert [member.failure for member in found] == [None] * len(found)
    return found


def test_four_adapted_and_two_plain_tenants_train_in_one_group_as_each_alone(backbone, data, store) -> None:
    together = [Tenant(backbone, data, *case) for case in CASES]
    alone = [Tenant(backbone, data, *case) for case in CASES]
    before = [tenant.weights() for tenant in together]
    grouped = train(store, together, 3)
    for tenant, other, start, member in zip(together, alone, before, grouped, strict=True):
        single = train(store, [other], 3)[0]
        assert single.metrics == member.metrics
        assert equal(tenant.weights(), other.weights())
        changed = {name for name, value in tenant.weights().items() if not torch.equal(value, start[name])}
        adapted = {name for name in start if name.startswith("lora.up")}
        assert adapted <= changed
        assert bool(adapted) == (tenant.spec.lora is not None)


def test_the_comparison_notices_a_neighbours_adapter(backbone, data, store) -> None:
    one, other = Tenant(backbone, data, 1, 4), Tenant(backbone, data, 1, 4)
    with torch.no_grad():
        other.slot.lora.up[0].add_(1e-3)
    train(store, [one], 1)
    train(store, [other], 1)
    assert not equal(one.weights(), other.weights())


def test_nan_of_one_adapted_tenant_touches_nobody_and_leaves_it_as_it_was(backbone, data, store) -> None:
    sick, well, alone = (Tenant(backbone, data, seed, 4) for seed in (1, 2, 2))
    with torch.no_grad():
        next(iter(sick.slot.policy.head.parameters())).fill_(float("nan"))
    before, random_state = sick.weights(), sick.slot.generator.get_state()
    members = [sick.member(store, 0), well.member(store, 0)]
    outcome = device_step(store).run(members)
    assert members[0].failure.reason == "non_finite_loss"
    assert members[1].failure is None
    after = sick.weights()
    assert all(torch.equal(after[name].nan_to_num(), before[name].nan_to_num()) for name in before)
    assert torch.equal(sick.slot.generator.get_state(), random_state)
    assert sick.slot.step == 0
    assert all(p.grad is None for p in sick.slot.named_parameters().values())
    train(store, [alone], 1)
    assert equal(well.weights(), alone.weights())
    span = record_step(outcome, leased_at_us=0).entries[0].body
    assert sum(span.shares.values()) + span.overhead_us == span.busy_us


def test_a_stopped_job_is_left_out_and_nobody_else_notices(backbone, data, store) -> None:
    stopped, well, alone = (Tenant(backbone, data, seed, 4) for seed in (1, 2, 2))
    before = stopped.weights()
    members = [stopped.member(store, 0), well.member(store, 0)]
    members[0].job.stopped = True
    device_step(store).run(members)
    assert members[0].skipped
    assert equal(stopped.weights(), before)
    train(store, [alone], 1)
    assert equal(well.weights(), alone.weights())


def test_fitting_and_evaluating_an_adapted_policy_keep_no_gradient(backbone, data, store) -> None:
    tenant = Tenant(backbone, data, 1, 4)
    train(store, [tenant], 1)
    members = [tenant.member(store, 1, Purpose.EVALUATE), Tenant(backbone, data, 2, None).member(store, 1)]
    device_step(store).run(members)
    assert members[0].failure is None
    expected = tenant.slot.evaluate(tenant.features(tenant.batch(1)), tenant.batch(1))
    assert np.array_equal(members[0].error.baseline_A, expected.baseline_A)
    assert members[0].error.metrics() == expected.metrics()
    assert all(parameter.grad is None for parameter in tenant.slot.named_parameters().values())


def test_resuming_equals_never_having_stopped(backbone, data, store, tmp_path) -> None:
    steady, resumed = Tenant(backbone, data, 1, 4), Tenant(backbone, data, 1, 4)
    train(store, [resumed], 2)
    save_slot(resumed.slot, tmp_path / "c")
    resumed.slot = load_slot(tmp_path / "c", tap_width=backbone.tap_width, base=backbone, spec=resumed.spec)
    train(store, [steady], 2)
    last = [[t.member(store, at) for t in (steady, resumed)] for at in (2, 3)]
    for members in last:
        device_step(store).run(members)
    assert last[-1][0].metrics == last[-1][1].metrics
    assert equal(steady.weights(), resumed.weights())


def test_a_checkpoint_without_its_adapter_is_refused(backbone, data, tmp_path) -> None:
    save_slot(Tenant(backbone, data, 1, 4).slot, tmp_path / "c")
    (tmp_path / "c" / "lora.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lora\.safetensors"):
        load_slot(tmp_path / "c", tap_width=backbone.tap_width, base=backbone)


def exported(backbone, data, store, folder: Path) -> Tenant:
    tenant = Tenant(backbone, data, 1, 4)
    train(store, [tenant], 3)
    frames = probe_frames(data.lengths[0], 5)
    probe = run_probe(tenant.slot.policy, backbone, tenant.source, episode=0, frames=frames)
    export_adapter(tenant.slot, folder, backbone=backbone, provenance=PROVENANCE, probe=probe)
    return tenant


def test_a_reloaded_policy_acts_as_the_live_one_and_has_its_adapter(backbone, data, store, tmp_path) -> None:
    tenant = exported(backbone, data, store, tmp_path / "a")
    loaded = load_adapter(tmp_path / "a", backbone)
    live = tenant.slot.policy
    assert equal(loaded.policy.lora.state_dict(), live.lora.state_dict())
    assert not any(parameter.requires_grad for parameter in loaded.policy.lora.parameters())
    assert loaded.policy.signature(backbone) == live.signature(backbone)
    frames = loaded.probe.frames
    again = run_probe(loaded.policy, backbone, tenant.source, episode=0, frames=frames)
    assert np.array_equal(again.actions_NHA, loaded.probe.actions_NHA)
    loaded.policy.lora = None
    assert not np.array_equal(
        run_probe(loaded.policy, backbone, tenant.source, episode=0, frames=frames).actions_NHA, again.actions_NHA
    )


def test_the_manifest_tells_the_adapters_size_as_the_platform_reckons_it(backbone, data, store, tmp_path) -> None:
    lora = exported(backbone, data, store, tmp_path / "a").slot.policy.lora
    told = read_manifest(tmp_path / "a").lora
    held = sum(parameter.numel() for parameter in lora.parameters())
    assert told.param_count == held == lora_parameters(lora.spec, backbone.info.lora_modules) > 0
    assert (told.rank, told.alpha, told.target_modules) == (lora.spec.rank, lora.spec.alpha, lora.spec.target_modules)
    assert (tmp_path / "a" / told.folder / "adapter_config.json").is_file()


def test_an_altered_adapter_of_the_base_is_refused(backbone, data, store, tmp_path) -> None:
    exported(backbone, data, store, tmp_path / "a")
    path = tmp_path / "a" / "lora" / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(AdapterError, match="lora/adapter_model"):
        load_adapter(tmp_path / "a", backbone)


def test_features_of_another_adapter_have_another_prefix(backbone, data) -> None:
    plain, one, other = (Tenant(backbone, data, 1, rank).slot.policy for rank in (None, 4, 4))
    assert one.signature(backbone).hash == other.signature(backbone).hash
    assert plain.signature(backbone).hash != one.signature(backbone).hash
    with torch.no_grad():
        other.lora.up[0][0, 0] += 1e-6
    assert one.signature(backbone).hash != other.signature(backbone).hash
