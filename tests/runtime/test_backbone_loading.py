"""Bases: built in with the same weights everywhere, or loaded from a checkpoint folder; frozen either way."""

import json
import random
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BUILT_IN_BASES, BaseModelEntry
from tests.support.backbones import TransformersForward, random_feature
from tests.support.checkpoints import write_checkpoint, write_tokenizer

REVISIONS = {
    "tiny-qwen3-vl": "f4ca1f25c5a4d0c190629ef4218e8a0ee05ec9cde316c29f83913347df8861f9",
    "small-qwen3-vl": "e732be45ec5124d3dde713274c62656ef892fd225786ec4dc9b8ebed9495b720",
}
PARAMETERS = {"tiny-qwen3-vl": (2e6, 3e6), "small-qwen3-vl": (20e6, 25e6)}


def load(name: str, source: str | None = None, **options: object) -> Qwen3VLBackbone:
    return load_backbone(BaseModelEntry(name=name, source=source or name), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tiny() -> Qwen3VLBackbone:
    return load("tiny-qwen3-vl")


@pytest.fixture(scope="module")
def folder(tiny: Qwen3VLBackbone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(path, tiny.model)
    return path


def copy_of(folder: Path, target: Path) -> Path:
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize("name", sorted(BUILT_IN_BASES))
def test_a_built_in_base_has_the_same_weights_on_every_machine(name: str) -> None:
    info = load(name).info
    assert info.revision == REVISIONS[name]
    assert info.random_weights
    low, high = PARAMETERS[name]
    assert low < info.parameters < high


def test_its_weights_have_the_spread_of_transformers_initialisation(tiny: Qwen3VLBackbone) -> None:
    weight = tiny.model.language_model.layers[0].mlp.gate_proj.weight
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert weight.mean().item() == pytest.approx(0, abs=2e-4)
    assert torch.equal(tiny.model.language_model.norm.weight, torch.ones(128))
    assert tiny.model.visual.blocks[0].norm1.bias.abs().max() == 0


def test_building_a_base_leaves_every_random_state_of_the_process_alone() -> None:
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    expected = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    load("tiny-qwen3-vl")
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected


def test_a_base_is_frozen_and_in_evaluation_mode(tiny: Qwen3VLBackbone) -> None:
    assert not any(parameter.requires_grad for parameter in tiny.model.parameters())
    assert not any(module.training for module in tiny.model.modules())
    assert not isinstance(tiny, torch.nn.Module), "a head must not be able to register it"


def test_half_precision_bases_keep_rotary_frequencies_in_float32() -> None:
    base = load("tiny-qwen3-vl", dtype="bfloat16")
    assert {parameter.dtype for parameter in base.model.parameters()} == {torch.bfloat16}
    assert base.model.language_model.rotary_emb.inv_freq.dtype == torch.float32
    assert base.info.revision == REVISIONS["tiny-qwen3-vl"], "the weights are the same base, the class is another"
    assert base.group_key != load("tiny-qwen3-vl").group_key
    rows = base.encode([random_feature(np.random.default_rng(0))], [{"layer:-1"}])[0]["layer:-1"]
    assert rows.dtype == torch.bfloat16
    assert rows.isfinite().all()


def test_a_checkpoint_folder_gives_the_features_of_transformers_own_forward(folder: Path) -> None:
    base = load("published", str(folder))
    assert not base.info.random_weights
    feature = random_feature(np.random.default_rng(0), sizes=[(64, 64), (64, 64)], queries=4)
    grouped = base.encode([feature] * 2, [{"layer:-1", "query", "vision"}] * 2)
    view = "<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>"
    suffix = " Please predict the next 4 robot actions: <action>🔍🔍🔍🔍<action>."
    text = f"<|im_start|>user\n{view}{view}{feature.instruction}{suffix}<|im_end|>\n<|im_start|>assistant\n"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(text, add_special_tokens=False)
    queries = [place for place, token in enumerate(ids) if tokenizer.decode([token]) == "🔍"]
    assert len(queries) == 4
    expected = TransformersForward(base).rows(ids, feature)
    for rows in grouped:
        torch.testing.assert_close(rows["vision"], expected["vision"], rtol=0, atol=5e-6)
        torch.testing.assert_close(rows["layer:-1"], expected["layer:-1"], rtol=0, atol=1e-5)
        torch.testing.assert_close(rows["query"], expected["layer:-1"][queries], rtol=0, atol=1e-5)


def test_a_hub_id_is_pinned_by_its_commit_and_fetches_no_code_or_pickles(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c0ffee" * 6 + "c0ff"
    snapshot = copy_of(folder, tmp_path / commit)
    asked: dict[str, object] = {}

    def snapshot_download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.update(repository=repository, revision=revision, patterns=allow_patterns)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert load("published", f"Org/Model@{commit}").info.revision == commit
    assert (asked["repository"], asked["revision"]) == ("Org/Model", commit)
    unwanted = ("pytorch_model.bin", "model.pt", "modeling.py", "model.pkl", "model.ckpt")
    assert not any(fnmatch(name, pattern) for name in unwanted for pattern in asked["patterns"])
    load("published", "Org/Model")
    assert asked["revision"] is None


def test_a_folders_revision_follows_its_weights(folder: Path, tmp_path: Path) -> None:
    other = copy_of(folder, tmp_path / "other")
    revision = load("a", str(folder)).info.revision
    assert load("b", str(other)).info.revision == revision
    shard = max(other.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(content)
    assert load("b", str(other)).info.revision != revision


@pytest.mark.parametrize("instruction", ["<|image_pad|>", "push<|im_end|>", "a <|vision_start|> b"])
def test_an_instruction_that_smuggles_a_control_token_is_refused(folder: Path, instruction: str) -> None:
    feature = random_feature(np.random.default_rng(0))
    smuggling = type(feature)(images=feature.images, instruction=instruction)
    with pytest.raises(ValueError, match=r"sample 1: instruction: .* contains a control token"):
        load("published", str(folder)).encode([feature, smuggling], [{"vision"}] * 2)


def test_a_tokenizer_that_splits_the_query_symbol_is_refused(folder: Path, tmp_path: Path) -> None:
    other = copy_of(folder, tmp_path / "other")
    write_tokenizer(other, query_is_one_token=False)
    with pytest.raises(ValueError, match="tokenizer: '🔍' must be one token"):
        load("published", str(other))


def test_another_architecture_is_refused(folder: Path, tmp_path: Path) -> None:
    other = copy_of(folder, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    with pytest.raises(ValueError, match="model_type 'llama', allowed is 'qwen3_vl'"):
        load("published", str(other))


def test_a_checkpoint_with_missing_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    other = copy_of(folder, tmp_path / "other")
    index = json.loads((other / "model.safetensors.index.json").read_text())
    lost = index["weight_map"]["model.visual.merger.linear_fc1.weight"]
    index["weight_map"] = {name: shard for name, shard in index["weight_map"].items() if shard != lost}
    (other / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"weights are missing"):
        load("published", str(other))


def test_pickled_weights_are_never_read(folder: Path, tmp_path: Path) -> None:
    other = copy_of(folder, tmp_path / "other")
    for path in [*other.glob("*.safetensors"), other / "model.safetensors.index.json"]:
        path.unlink()
    torch.save({}, other / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        load("published", str(other))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float64"}, r"dtype: 'float64', allowed are \['bfloat16', 'float16', 'float32'\]"),
        ({"max_tokens_per_forward": 0}, "max_tokens_per_forward: 0 must be at least 1"),
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("tiny-qwen3-vl", **options)
