"""A policy after reinforcement learning: durable in the middle, and at the end an adapter that proves itself alone."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_runtime.models import act
from gpu_runtime.models.adapters import load_adapter
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.errors import FileAltered, TensorMismatch
from gpu_runtime.models.export import PROBE, Provenance, export_adapter
from gpu_runtime.models.folders import sha256
from gpu_runtime.models.manifest import NAME, read_manifest
from gpu_runtime.models.probe import Probe, probe_observations
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.base import fingerprint
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.rl.batch import RlBatch
from gpu_runtime.training.rl.update import update
from tests.support.inference import make_slot, observation
from tests.support.rl_training import rl_job

PARENT = "a" * 64
PROVENANCE = Provenance(
    job_id="job",
    tenant_id="t",
    dataset_fingerprint="f" * 64,
    final_metrics={"train/loss": 0.5},
    evaluation={},
    parent=PARENT,
    environment="joynexus/Reach-v0",
    algorithm="grpo",
    env_steps=320,
)


@pytest.fixture(scope="module")
def base() -> Backbone:
    torch.set_num_threads(1)
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


def trained(base: Backbone, steps: int, *, slot: RlSlot | None = None, first: int = 0) -> RlSlot:
    """A slot after so many versions; experience is a function of the step and the slot."""
    spec = rl_job("grpo")
    slot = slot or RlSlot.create(make_slot("mlp", base).policy, spec)
    for at in range(first, first + steps):
        update(slot, *played(slot, base, at), spec, partition_id=f"p{at}")
    return slot


def played(slot: RlSlot, base: Backbone, seed: int, samples: int = 20):
    frames = [observation(100 * seed + at, queries=slot.query_tokens) for at in range(samples)]
    features = base.encode(frames, [slot.taps] * samples)
    state_NS = np.random.default_rng(seed).normal(size=(samples, 2)).astype(np.float32)
    _, trace = slot.models.act_with_trace(features, state_NS, seeds=range(samples))
    batch = RlBatch(
        images=(np.stack([frame.images[0] for frame in frames]),),
        instructions=("push",) * samples,
        state_NS=state_NS,
        handles=("",) * samples,
        trace={name: value.numpy() for name, value in trace.items()},
        advantage_N=np.random.default_rng(seed).normal(size=samples).astype(np.float32),
        mask_NC=np.ones((samples, 3), bool),
        version_N=np.full(samples, slot.policy_version),
        episode_N=np.arange(samples),
    )
    return features, batch


def exported(base: Backbone, folder: Path) -> tuple[RlSlot, Probe]:
    slot = trained(base, 2)
    probe = probe_observations(slot.policy, base, slot.observed)
    export_adapter(slot, folder, backbone=base, provenance=PROVENANCE, probe=probe)
    return slot, probe


def test_the_adapter_says_what_it_came_from_and_acts_as_the_live_policy_did(base: Backbone, tmp_path: Path) -> None:
    slot, probe = exported(base, tmp_path / "a")
    assert probe.actions_NHA.shape == (16, 4, 3)
    adapter = load_adapter(tmp_path / "a", base)
    training = adapter.manifest.training
    assert (training.kind, training.parent, training.algorithm, training.env_steps) == ("rl", PARENT, "grpo", 320)
    assert (training.steps, training.policy_version, training.partitions) == (2, 2, 2)
    assert adapter.probe.observations is not None
    again = probe_observations(adapter.policy, base, adapter.probe.observations)
    assert np.array_equal(again.actions_NHA, probe.actions_NHA)
    assert np.array_equal(adapter.probe.observations.images[0], slot.observed.images[0])


def test_the_act_command_replays_it_without_a_dataset(base: Backbone, tmp_path: Path, capsys) -> None:
    exported(base, tmp_path / "a")
    assert act.main(["--adapter", str(tmp_path / "a")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["max_difference"] <= 1e-6
    assert (report["observations"], report["episode"], report["policy_version"]) == (16, None, 2)


def test_the_act_command_notices_other_weights(base: Backbone, tmp_path: Path, capsys) -> None:
    slot, probe = exported(base, tmp_path / "a")
    trained(base, 1, slot=slot, first=2)
    export_adapter(slot, tmp_path / "b", backbone=base, provenance=PROVENANCE, probe=probe)
    assert act.main(["--adapter", str(tmp_path / "b")]) == 1
    assert json.loads(capsys.readouterr().out)["max_difference"] > 1e-5


def test_observations_that_were_altered_are_refused(base: Backbone, tmp_path: Path) -> None:
    exported(base, tmp_path / "a")
    tensors = load_file(tmp_path / "a" / PROBE)
    tensors["image.00"][0] = 255 - tensors["image.00"][0]
    save_file(tensors, tmp_path / "a" / PROBE)
    with pytest.raises(FileAltered, match=PROBE):
        load_adapter(tmp_path / "a", base)


def test_observations_that_do_not_fit_their_texts_are_refused(base: Backbone, tmp_path: Path) -> None:
    exported(base, tmp_path / "a")
    tensors = load_file(tmp_path / "a" / PROBE)
    tensors["image.00"] = tensors["image.00"][:3].clone()
    save_file(tensors, tmp_path / "a" / PROBE)
    document = json.loads((tmp_path / "a" / NAME).read_text())
    entry = next(file for file in document["files"] if file["path"] == PROBE)
    entry |= {"sha256": sha256(tmp_path / "a" / PROBE), "bytes": (tmp_path / "a" / PROBE).stat().st_size}
    document["adapter_id"] = fingerprint({key: value for key, value in document.items() if key != "adapter_id"})
    (tmp_path / "a" / NAME).write_text(json.dumps(document))
    with pytest.raises(TensorMismatch, match=r"image\.00"):
        load_adapter(tmp_path / "a", base)


def test_a_job_whose_batches_were_all_empty_is_exported_with_nothing_to_compare(
    base: Backbone, tmp_path: Path, capsys
):
    slot = trained(base, 0)
    probe = probe_observations(slot.policy, base, slot.observed)
    export_adapter(slot, tmp_path / "a", backbone=base, provenance=PROVENANCE, probe=probe)
    assert act.main(["--adapter", str(tmp_path / "a")]) == 0
    assert json.loads(capsys.readouterr().out)["max_difference"] is None
    assert read_manifest(tmp_path / "a").probe.instructions == ()


def test_the_service_keeps_checkpoints_of_this_kind_too_and_training_goes_on_as_if_nothing_was(
    base: Backbone, tmp_path: Path
) -> None:
    steady = trained(base, 2)
    job = MountedJob(job_id="j", attempt=1, tenant_id="t", slot=steady, backbone=base, checkpoint_every=1)
    checkpoints = Checkpoints(tmp_path, keep=2)
    published = checkpoints.write(checkpoints.copy(job))
    assert (published.version, published.step) == (2, 2)
    loaded = checkpoints.load_rl("j", 1, spec=rl_job("grpo"), tap_width=base.tap_width)
    assert loaded is not None
    resumed = loaded.slot
    before = {name: p.detach().clone() for name, p in steady.named_parameters().items()}
    for slot in (steady, resumed):
        trained(base, 2, slot=slot, first=2)
    after = resumed.named_parameters()
    assert all(torch.equal(p, after[name]) for name, p in steady.named_parameters().items())
    assert any(not torch.equal(p, before[name]) for name, p in after.items())
    probes = [probe_observations(slot.policy, base, slot.observed) for slot in (steady, resumed)]
    assert np.array_equal(probes[0].actions_NHA, probes[1].actions_NHA)
