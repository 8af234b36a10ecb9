"""Adapters in PEFT's format: written for PEFT, read from PEFT, refused by name where not honoured."""

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.errors import AdapterError, BaseMismatch, LoraUnsupported, NotSafetensors, TensorMismatch
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.models.lora.peft_files import CONFIG, PICKLED, WEIGHTS, load_peft, save_peft
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import LoraSpec
from tests.support.backbones import TransformersForward, ragged_group

TAP = "layer:-1"


@pytest.fixture(scope="module")
def tiny() -> Qwen3VLBackbone:
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


def trained(backbone: Qwen3VLBackbone, spec: LoraSpec) -> LoraAdapter:
    adapter = LoraAdapter(spec, backbone)
    generator = torch.Generator().manual_seed(7)
    adapter.reset_parameters(generator)
    with torch.no_grad():
        for up_Or in adapter.up:
            up_Or.copy_(torch.randn(up_Or.shape, generator=generator) * 0.05)
    return adapter


@pytest.fixture
def folder(tiny: Qwen3VLBackbone, tmp_path: Path) -> Path:
    save_peft(trained(tiny, LoraSpec(rank=4)), tmp_path, tiny.info)
    return tmp_path


def change(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | settings))


@pytest.mark.parametrize(
    "spec", [LoraSpec(), LoraSpec(rank=3, alpha=5, target_modules=("q_proj", "down_proj"))], ids=["all", "some"]
)
def test_peft_loads_what_we_saved_and_its_outputs_are_equal(
    tiny: Qwen3VLBackbone, tmp_path: Path, spec: LoraSpec
) -> None:
    adapter = trained(tiny, spec)
    save_peft(adapter, tmp_path, tiny.info)
    reference = TransformersForward(tiny)
    feature = ragged_group(seed=2, samples=1)[0]
    base = reference.features(feature)[TAP]
    wrapped = peft.PeftModel.from_pretrained(reference.model, str(tmp_path))
    theirs = reference.features(feature)[TAP]  # PEFT has put its layers into the model itself
    ours = tiny.encode_adapted([feature], [{TAP}], [adapter], False)[0][TAP]
    assert wrapped.peft_config["default"].r == spec.rank
    assert (theirs - base).abs().max() > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_we_load_what_peft_saved_and_the_features_are_equal(tiny: Qwen3VLBackbone, tmp_path: Path) -> None:
    reference = TransformersForward(tiny)
    config = peft.LoraConfig(r=6, lora_alpha=9, target_modules=["q_proj", "up_proj"], lora_dropout=0.1)
    wrapped = peft.get_peft_model(reference.model, config)
    with torch.no_grad():
        for name, value in wrapped.named_parameters():
            if "lora_" in name:
                value.normal_(std=0.1)
    wrapped.save_pretrained(str(tmp_path))
    wrapped.eval()
    adapter = load_peft(tmp_path, tiny)
    feature = ragged_group(seed=4, samples=1)[0]
    ours = tiny.encode_adapted([feature], [{TAP}], [adapter], False)[0][TAP]
    assert adapter.spec == LoraSpec(rank=6, alpha=9, target_modules=("q_proj", "up_proj"))
    torch.testing.assert_close(ours, reference.features(feature)[TAP], rtol=1e-5, atol=1e-5)


def test_saved_and_loaded_again_it_is_the_same_bit_for_bit(tiny: Qwen3VLBackbone, folder: Path) -> None:
    own, again = trained(tiny, LoraSpec(rank=4)), load_peft(folder, tiny)
    assert own.spec == again.spec
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("peft_type", "IA3"), ("use_dora", True), ("use_rslora", True), ("bias", "all"),
        ("modules_to_save", ["norm"]), ("rank_pattern", {"q_proj": 2}), ("alpha_pattern", {"q_proj": 2}),
        ("lora_bias", True), ("fan_in_fan_out", True), ("layer_replication", [[0, 2]]), ("r", 0),
        ("init_lora_weights", "pissa"), ("invented_later", 1),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_honoured_is_refused_by_name(
    tiny: Qwen3VLBackbone, folder: Path, setting: str, value: Any
) -> None:
    change(folder, **{setting: value})
    with pytest.raises(LoraUnsupported, match="rank" if setting == "r" else setting):
        load_peft(folder, tiny)


def test_an_adapter_of_another_base_revision_is_refused(tiny: Qwen3VLBackbone, folder: Path) -> None:
    change(folder, revision="0123")
    with pytest.raises(BaseMismatch, match="0123"):
        load_peft(folder, tiny)


def test_pickled_weights_are_refused_unread(tiny: Qwen3VLBackbone, folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / PICKLED)
    with pytest.raises(NotSafetensors, match="pickle"):
        load_peft(folder, tiny)


@pytest.mark.parametrize("fault", ["nan", "shape", "missing", "extra"])
def test_tensors_that_do_not_fit_are_refused_by_name(tiny: Qwen3VLBackbone, folder: Path, fault: str) -> None:
    tensors = load_file(folder / WEIGHTS)
    name = sorted(tensors)[3]
    if fault == "nan":
        tensors[name][0, 0] = float("nan")
    elif fault == "shape":
        tensors[name] = tensors[name][:-1].clone()
    elif fault == "missing":
        del tensors[name]
    else:
        tensors[name.replace("layers.", "layers.9")] = tensors[name].clone()
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(TensorMismatch, match="lora_"):
        load_peft(folder, tiny)


def test_a_module_of_the_vision_tower_is_refused(tiny: Qwen3VLBackbone, folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["base_model.model.visual.blocks.0.attn.qkv.lora_A.weight"] = torch.zeros(4, 96)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(LoraUnsupported, match="qkv"):
        load_peft(folder, tiny)


def test_a_broken_configuration_is_refused(tiny: Qwen3VLBackbone, folder: Path) -> None:
    (folder / CONFIG).write_text("{")
    with pytest.raises(AdapterError, match=CONFIG):
        load_peft(folder, tiny)
