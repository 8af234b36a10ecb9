"""Samples known to be equal run once, and no sample goes through a text layer that only others need."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_runtime.batching.collate import collate
from gpu_runtime.batching.microgroups import micro_groups
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from tests.support.backbones import ragged_group, random_feature


@pytest.fixture(scope="module")
def tiny() -> Qwen3VLBackbone:
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of_layers(backbone: Qwen3VLBackbone, features, taps) -> tuple[list[dict[str, torch.Tensor]], list[int]]:
    """What was encoded, and the packed rows that each text layer saw, all forwards together."""
    seen = [0] * backbone.info.layers
    hooks = []
    for number, layer in enumerate(backbone.model.language_model.layers):

        def count(_module, arguments, _output, number=number) -> None:
            seen[number] += arguments[0].shape[1]

        hooks.append(layer.register_forward_hook(count))
    encoded = backbone.encode(features, taps)
    for hook in hooks:
        hook.remove()
    return encoded, seen


def test_samples_of_one_key_run_once_for_everybodys_taps(tiny: Qwen3VLBackbone) -> None:
    frame, other = (replace(one, key=("d", at)) for at, one in enumerate(ragged_group(seed=1, samples=2)))
    group = [frame, other, replace(frame), frame]
    taps = [{"layer:0"}, {"layer:-1"}, {"vision", "layer:-1"}, {"layer:0"}]
    encoded, seen = rows_of_layers(tiny, group, taps)
    assert seen[0] == tiny.tokens(frame) + tiny.tokens(other) == tiny.tokens_together(group)
    for feature, asked, rows in zip(group, taps, encoded, strict=True):
        alone = tiny.encode([feature], [asked])[0]
        assert rows.keys() == asked
        assert all(torch.equal(rows[tap], alone[tap]) for tap in asked)
    before = encoded[3]["layer:0"].clone()
    encoded[0]["layer:0"].zero_()
    assert torch.equal(encoded[3]["layer:0"], before), "rows of its own"


@pytest.mark.parametrize("change", ["key", "instruction", "query_tokens", "images"])
def test_a_key_is_not_believed_for_samples_that_differ_otherwise(tiny: Qwen3VLBackbone, change: str) -> None:
    feature = replace(random_feature(np.random.default_rng(0)), key="frame")
    changed = {
        "key": "another",
        "instruction": "x" * len(feature.instruction),
        "query_tokens": 2,
        "images": random_feature(np.random.default_rng(1), sizes=[(32, 64)]).images,
    }[change]
    group = [feature, replace(feature, **{change: changed})]
    for rows, own in zip(tiny.encode(group, [{"layer:-1"}] * 2), group, strict=True):
        assert torch.equal(rows["layer:-1"], tiny.encode([replace(own, key=None)], [{"layer:-1"}])[0]["layer:-1"])


def test_equal_samples_without_a_key_run_each(tiny: Qwen3VLBackbone) -> None:
    feature = random_feature(np.random.default_rng(0))
    _, seen = rows_of_layers(tiny, [feature, feature], [{"layer:0"}] * 2)
    assert seen[0] == 2 * tiny.tokens(feature)


@pytest.mark.parametrize("limit", [10_000, 150])
def test_a_sample_leaves_the_text_stack_after_its_deepest_tap(tiny: Qwen3VLBackbone, limit: int) -> None:
    group = ragged_group(seed=5, samples=8)
    deepest = ["layer:0", "layer:-1", "vision", "layer:2", "query", "layer:4", "merged", "layer:2"]
    group[4] = replace(group[4], query_tokens=3)
    group[0] = replace(group[0], query_tokens=2)  # has query tokens that it is not read at
    taps = [{tap} for tap in deepest]
    taps[1].add("layer:1")
    layers = [1, 6, 0, 3, 6, 5, 0, 3]
    tiny.limit_tokens(limit)
    encoded, seen = rows_of_layers(tiny, group, taps)
    tiny.limit_tokens(768)
    assert seen == [
        sum(tiny.tokens(feature) for feature, own in zip(group, layers, strict=True) if own > number)
        for number in range(6)
    ]
    for feature, asked, rows in zip(group, taps, encoded, strict=True):
        alone = tiny.encode([feature], [asked])[0]
        assert all(torch.equal(rows[tap], alone[tap]) for tap in asked)


def test_samples_are_packed_the_deepest_first_or_not_at_all(tiny: Qwen3VLBackbone) -> None:
    samples = [tiny._prepare(feature) for feature in ragged_group(seed=5, samples=3)]
    with pytest.raises(ValueError, match=r"depths: \[1, 3, 0\], a sample may need no more layers"):
        collate(samples, depths=[1, 3, 0])
    assert [collate(samples, depths=[3, 1, 0]).running(layer) for layer in range(4)] == [2, 1, 1, 0]
    assert micro_groups(samples, depths=[1, 3, 0], max_tokens=10_000) == [(1, 0, 2)]


def test_no_forward_is_left_with_a_single_sample_where_the_tokens_can_be_spread(tiny: Qwen3VLBackbone) -> None:
    sample = tiny._prepare(random_feature(np.random.default_rng(0), words=1))
    sizes = [len(group) for group in micro_groups([sample] * 11, depths=[6] * 11, max_tokens=10 * sample.length)]
    assert sizes == [6, 5]
