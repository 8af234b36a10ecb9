"""Exported adapters: a clean process acts as the live policy did, and every doubtful folder is refused by name."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.sampler import FrameSampler
from gpu_runtime.data.samples import SampleSource
from gpu_runtime.data.statistics import dataset_statistics
from gpu_runtime.models import act, errors
from gpu_runtime.models.adapters import load_adapter
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.export import Provenance, export_adapter
from gpu_runtime.models.folders import sha256
from gpu_runtime.models.probe import Probe, probe_frames, run_probe
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.base import fingerprint
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.specs import SftJobSpec
from tests.support.demonstrations import make_dataset
from tests.support.policies import SMALL_HEADS

EVERY_HEAD = sorted(SMALL_HEADS)
PROVENANCE = Provenance(
    job_id="job-1", tenant_id="tenant-1", dataset_fingerprint="f" * 64, final_metrics={"loss": 0.5}, evaluation={}
)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A slot trained for a few steps, its data and its exported folder."""

    slot: Slot
    dataset: Path
    folder: Path
    probe: Probe
    backbone: Backbone


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("data") / "push", cameras=2)


def train(head: str, dataset: Path, backbone: Backbone, folder: Path, steps: int = 4) -> Trained:
    """The whole life of an adapter, without services."""
    data = LeRobotDataset.open(dataset)
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": "export me",
            "base_model": "tiny-qwen3-vl",
            "head": SMALL_HEADS[head],
            "dataset": {"id": "dataset-1", "image_size": 32},
            "training": {"steps": steps, "batch_size": 8},
            "optimizer": {"lr": 1e-3},
        }
    )
    source = SampleSource(data, spec.dataset, spec.head.horizon)
    slot = Slot.create(
        spec=spec, schema=data.schema, statistics=dataset_statistics(data), tap_width=backbone.tap_width
    )
    sampler = FrameSampler(data.lengths, range(len(data.lengths)), 8, seed=0)
    for step in range(steps):
        batch = source.batch(sampler.batch(step))
        inputs = to_features(batch, slot.query_tokens)
        features = backbone.encode(inputs, [slot.taps] * len(inputs))
        if slot.needs_fit:
            slot.fit(features, batch)
        slot.train_step(features, batch, f"p{step}")
    probe = run_probe(slot.policy, backbone, source, episode=0, frames=probe_frames(data.lengths[0], 5))
    export_adapter(slot, folder, backbone=backbone, provenance=PROVENANCE, probe=probe)
    return Trained(slot=slot, dataset=dataset, folder=folder, probe=probe, backbone=backbone)


@pytest.fixture(scope="module")
def trained(dataset: Path, backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train("mlp", dataset, backbone, tmp_path_factory.mktemp("adapters") / "mlp")


@pytest.fixture
def copied(trained: Trained, tmp_path: Path) -> Path:
    """A copy of the adapter that a test may spoil."""
    return Path(shutil.copytree(trained.folder, tmp_path / "adapter"))


def run_act(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = act.main(list(arguments))
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("head", EVERY_HEAD)
def test_a_reloaded_adapter_acts_as_the_live_policy_did(
    head: str, dataset: Path, backbone: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    trained = train(head, dataset, backbone, tmp_path / head)
    status, report = run_act(capsys, "--adapter", str(trained.folder), "--dataset", str(dataset), "--episode", "0")
    assert status == 0, report
    assert report["max_difference"] <= 1e-5
    assert np.allclose(report["actions"], trained.probe.actions_NHA, atol=1e-5)
    assert report["label"] == "random weights"
    assert report["frames"] == list(trained.probe.frames)


def test_a_clean_process_reproduces_the_live_policy(trained: Trained):
    command = [sys.executable, "-m", "gpu_runtime", "act", "--adapter", str(trained.folder), "--dataset"]
    result = subprocess.run([*command, str(trained.dataset)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["max_difference"] <= 1e-5
    assert np.shape(report["actions"]) == (5, 4, 2)


def test_another_policy_version_is_noticed_by_the_probe(
    trained: Trained, copied: Path, capsys: pytest.CaptureFixture[str]
):
    weights = load_file(copied / "adapter.safetensors")
    weights["out.bias"] += 0.05
    save_file(weights, copied / "adapter.safetensors")
    reseal(copied)
    status, report = run_act(capsys, "--adapter", str(copied), "--dataset", str(trained.dataset))
    assert status == 1
    assert report["max_difference"] > 1e-4


def test_another_episode_runs_but_is_not_compared(trained: Trained, capsys: pytest.CaptureFixture[str]):
    arguments = ["--adapter", str(trained.folder), "--dataset", str(trained.dataset), "--episode", "2"]
    status, report = run_act(capsys, *arguments)
    assert (status, report["max_difference"], report["compared_with_episode"]) == (0, None, 0)


def test_the_manifest_tells_the_whole_story(trained: Trained):
    manifest = json.loads((trained.folder / "manifest.json").read_text())
    assert manifest["schema_version"] == "1.3"
    assert manifest["label"] == "random weights"
    assert manifest["base_model"]["revision"] == trained.backbone.info.revision
    assert manifest["prefix_signature"] == trained.slot.policy.signature(trained.backbone).hash
    views = [view["key"] for view in manifest["prefix"]["views"]]
    assert views == ["observation.images.view0", "observation.images.view1"]
    assert manifest["head"]["config"]["pca_dims"] == 8
    assert manifest["norm"]["statistics_hash"] == trained.slot.policy.statistics.hash
    assert manifest["training"]["policy_version"] == 4
    assert manifest["training"]["final_metrics"] == {"loss": 0.5}
    listed = {entry["path"]: entry["sha256"] for entry in manifest["files"]}
    on_disk = {path.name: sha256(path) for path in trained.folder.iterdir() if path.name != "manifest.json"}
    assert listed == on_disk


def test_statistics_are_written_in_the_shapes_of_openpi_and_starvla(trained: Trained):
    statistics = trained.slot.policy.statistics
    openpi = json.loads((trained.folder / "norm_stats.json").read_text())["norm_stats"]
    assert set(openpi) == {"state", "actions"}
    assert openpi["actions"] == {k: list(getattr(statistics.action, k)) for k in ("mean", "std", "q01", "q99")}
    starvla = json.loads((trained.folder / "dataset_statistics.json").read_text())["dataset-1"]
    assert set(starvla["action"]) == {"mean", "std", "min", "max", "q01", "q99", "mask"}
    assert starvla["num_transitions"] == statistics.frames


# --- refusals ---------------------------------------------------------------------------------------------------


def reseal(folder: Path, change: Callable[[dict[str, Any]], None] = lambda manifest: None) -> None:
    """What a careful forger would do: list the new hashes and the identifier that follows from them."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for entry in manifest["files"]:
        file = folder / entry["path"]
        if file.is_file():
            entry |= {"bytes": file.stat().st_size, "sha256": sha256(file)}
    change(manifest)
    manifest["adapter_id"] = fingerprint({key: value for key, value in manifest.items() if key != "adapter_id"})
    path.write_text(json.dumps(manifest))


def test_an_untouched_resealed_adapter_loads(copied: Path, backbone: Backbone):
    reseal(copied)
    load_adapter(copied, backbone)


@dataclass
class Renamed:
    """The same base under another identity."""

    backbone: Backbone
    changes: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name == "info":
            return self.backbone.info.model_copy(update=self.changes)
        return getattr(self.backbone, name)


@pytest.mark.parametrize("change", [{"revision": "0" * 64}, {"dtype": "bfloat16"}, {"name": "other"}])
def test_a_wrong_base_is_refused_by_the_field_that_differs(
    change: dict[str, str], trained: Trained, backbone: Backbone
):
    with pytest.raises(errors.BaseMismatch, match=next(iter(change))):
        load_adapter(trained.folder, Renamed(backbone, change))  # type: ignore[arg-type]


class OtherPrompt(Renamed):
    def signature(self, **parts: Any) -> Any:
        return replace(self.backbone.signature(**parts), prompt_template="something else")


def test_a_wrong_prefix_is_refused_by_the_part_that_differs(trained: Trained, backbone: Backbone):
    with pytest.raises(errors.PrefixMismatch, match="prompt_template"):
        load_adapter(trained.folder, OtherPrompt(backbone, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["norm_stats.json", "dataset_statistics.json"])
def test_missing_statistics_are_refused(name: str, copied: Path, backbone: Backbone):
    (copied / name).unlink()
    with pytest.raises(errors.StatisticsMissing, match=name):
        load_adapter(copied, backbone)


@pytest.mark.parametrize("name", ["norm_stats.json", "dataset_statistics.json"])
@pytest.mark.parametrize("resealed", [False, True])
def test_altered_statistics_are_refused_even_with_matching_hashes(
    name: str, resealed: bool, copied: Path, backbone: Backbone
):
    document = json.loads((copied / name).read_text())
    group = document["norm_stats"]["actions"] if "norm_stats" in document else document["dataset-1"]["action"]
    group["mean"][0] += 0.5
    (copied / name).write_text(json.dumps(document))
    if resealed:
        reseal(copied)
    with pytest.raises(errors.StatisticsAltered, match=name):
        load_adapter(copied, backbone)


def test_statistics_that_are_no_numbers_are_refused(copied: Path, backbone: Backbone):
    path = copied / "dataset_statistics.json"
    document = json.loads(path.read_text())
    document["dataset-1"]["action"]["mean"][0] = float("nan")
    path.write_text(json.dumps(document))
    reseal(copied)
    with pytest.raises(errors.StatisticsAltered, match="ValueError"):
        load_adapter(copied, backbone)


def test_altered_weights_are_refused(copied: Path, backbone: Backbone):
    content = bytearray((copied / "adapter.safetensors").read_bytes())
    content[-1] ^= 1
    (copied / "adapter.safetensors").write_bytes(content)
    with pytest.raises(errors.FileAltered, match=r"adapter\.safetensors"):
        load_adapter(copied, backbone)


def test_a_missing_probe_is_refused(copied: Path, backbone: Backbone):
    (copied / "probe.safetensors").unlink()
    with pytest.raises(errors.FileAltered, match="probe"):
        load_adapter(copied, backbone)


def test_a_pickle_in_safetensors_clothing_is_refused(copied: Path, backbone: Backbone):
    torch.save({"out.bias": torch.zeros(8)}, copied / "adapter.safetensors")
    reseal(copied)
    with pytest.raises(errors.NotSafetensors, match=r"adapter\.safetensors"):
        load_adapter(copied, backbone)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda weights: weights | {"out.bias": torch.zeros(3)}, r"'out\.bias' is .*\[3\].*allowed.*\[8\]"),
        (lambda weights: {k: v for k, v in weights.items() if k != "out.bias"}, r"'out\.bias' is missing"),
        (lambda weights: weights | {"extra": torch.zeros(3)}, "'extra' is not part"),
        (lambda weights: weights | {"out.bias": weights["out.bias"].half()}, "float16"),
        (lambda weights: weights | {"out.bias": torch.full((8,), float("nan"))}, "NaN"),
    ],
    ids=["shape", "missing", "extra", "precision", "nan"],
)
def test_tensors_that_do_not_fit_the_head_are_refused(
    spoil: Callable[..., Any], message: str, copied: Path, backbone: Backbone
):
    save_file(spoil(load_file(copied / "adapter.safetensors")), copied / "adapter.safetensors")
    reseal(copied)
    with pytest.raises(errors.TensorMismatch, match=message):
        load_adapter(copied, backbone)


def test_an_absurd_fitted_size_is_refused_before_memory_is_taken(copied: Path, backbone: Backbone):
    reseal(copied, lambda manifest: manifest["head"].update(fit_shape={"tokens": 10**12}))
    with pytest.raises(errors.TensorMismatch, match="fit_shape"):
        load_adapter(copied, backbone)


def test_an_unknown_major_version_is_refused(copied: Path, backbone: Backbone):
    reseal(copied, lambda manifest: manifest.update(schema_version="2.0", something_new=True))
    with pytest.raises(errors.UnknownSchemaMajor, match=r"2\.0"):
        load_adapter(copied, backbone)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "FileNotFoundError"),
        ("{", "JSONDecodeError"),
        ("[]", "schema_version"),
        ("{}", "schema_version"),
        ('{"schema_version": NaN}', "NaN"),
    ],
)
def test_an_unreadable_manifest_is_refused(content: str | None, message: str, copied: Path, backbone: Backbone):
    (copied / "manifest.json").unlink()
    if content is not None:
        (copied / "manifest.json").write_text(content)
    with pytest.raises(errors.ManifestInvalid, match=message):
        load_adapter(copied, backbone)


def test_an_edited_manifest_is_refused(copied: Path, backbone: Backbone):
    path = copied / "manifest.json"
    path.write_text(path.read_text().replace('"policy_version": 4', '"policy_version": 9'))
    with pytest.raises(errors.ManifestInvalid, match="adapter_id"):
        load_adapter(copied, backbone)


def test_a_manifest_that_lists_files_elsewhere_is_refused(copied: Path, backbone: Backbone):
    reseal(copied, lambda manifest: manifest["files"][0].update(path="../../secret"))
    with pytest.raises(errors.ManifestInvalid, match="secret"):
        load_adapter(copied, backbone)


def test_acting_on_another_robot_is_refused(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = make_dataset(tmp_path / "other", cameras=2, action_dim=3)
    status, report = run_act(capsys, "--adapter", str(trained.folder), "--dataset", str(other))
    assert (status, report["error"]["code"]) == (1, "action_mismatch")


def test_acting_without_a_needed_camera_is_refused(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = make_dataset(tmp_path / "other", cameras=1)
    status, report = run_act(capsys, "--adapter", str(trained.folder), "--dataset", str(other))
    assert (status, report["error"]["code"]) == (1, "camera_missing")


def test_acting_on_an_episode_that_does_not_exist_is_refused(trained: Trained, capsys: pytest.CaptureFixture[str]):
    arguments = ["--adapter", str(trained.folder), "--dataset", str(trained.dataset), "--episode", "99"]
    status, report = run_act(capsys, *arguments)
    assert (status, report["error"]["code"]) == (1, "episode_missing")


def test_an_adapter_is_not_put_on_another_base(trained: Trained, capsys: pytest.CaptureFixture[str]):
    arguments = ["--adapter", str(trained.folder), "--dataset", str(trained.dataset), "--base", "small-qwen3-vl"]
    status, report = run_act(capsys, *arguments)
    assert (status, report["error"]["code"]) == (1, "adapter_base_mismatch")
