"""Grouped LoRA: one packed forward and backward for all tenants, and to each the numbers of running alone."""

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.lora import linear
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import LoraSpec
from tests.support.backbones import TransformersForward, ragged_group, random_feature

TAP = frozenset({"layer:-1"})
Tenant = tuple[list[VLAFeature], list[frozenset[str]], LoraAdapter | None]
Result = tuple[list[dict[str, torch.Tensor]], list[torch.Tensor | None]]


@pytest.fixture(scope="module")
def tiny() -> Qwen3VLBackbone:
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_adapter(backbone: Qwen3VLBackbone, seed: int, spec: LoraSpec | None = None) -> LoraAdapter:
    """An adapter as after some training: B isn't zero any more."""
    adapter = LoraAdapter(spec or LoraSpec(), backbone)
    generator = torch.Generator().manual_seed(seed)
    adapter.reset_parameters(generator)
    with torch.no_grad():
        for up_Or in adapter.up:
            up_Or.copy_(torch.randn(up_Or.shape, generator=generator) * 0.05)
    return adapter


def equal_tenants(backbone: Qwen3VLBackbone, count: int, samples: int = 1) -> list[Tenant]:
    rng = np.random.default_rng(count)
    size = [(64, 64)]
    return [
        (
            [VLAFeature(images=random_feature(rng, sizes=size).images, instruction="lift it") for _ in range(samples)],
            [TAP] * samples,
            make_adapter(backbone, seed),
        )
        for seed in range(count)
    ]


def ragged_tenants(backbone: Qwen3VLBackbone) -> list[Tenant]:
    """Ranks, targets, taps, sample counts and lengths differ; one tenant has no adapter."""
    specs = [
        LoraSpec(rank=1), LoraSpec(rank=4, alpha=2), LoraSpec(rank=8), None,
        LoraSpec(rank=8, target_modules=("q_proj", "v_proj")), LoraSpec(rank=16),
    ]  # fmt: skip
    taps = [TAP, frozenset({"layer:2"}), TAP, TAP, frozenset({"layer:1", "vision"}), frozenset({"merged", "layer:3"})]
    tenants: list[Tenant] = []
    for seed, (spec, asked) in enumerate(zip(specs, taps, strict=True)):
        features = ragged_group(seed=seed, samples=1 + seed % 3)
        adapter = None if spec is None else make_adapter(backbone, seed, spec)
        tenants.append((features, [asked] * len(features), adapter))
    return tenants


def train_together(backbone: Qwen3VLBackbone, tenants: Sequence[Tenant]) -> list[Result]:
    """One forward and one backward for all; each tenant's features and gradients."""
    for _, _, adapter in tenants:
        if adapter is not None:
            adapter.zero_grad(set_to_none=True)
    rows = backbone.encode_adapted(
        [feature for features, _, _ in tenants for feature in features],
        [tap for _, taps, _ in tenants for tap in taps],
        [adapter for features, _, adapter in tenants for _ in features],
        True,
    )
    losses = [tap.square().mean() for sample in rows for tap in sample.values() if tap.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()
    results, start = [], 0
    for features, _, adapter in tenants:
        grads = [] if adapter is None else [copy.deepcopy(value.grad) for value in adapter.parameters()]
        results.append((rows[start : start + len(features)], grads))
        start += len(features)
    return results


def differences(one: Result, other: Result) -> list[str]:
    """What isn't equal to the last bit."""
    found = [
        f"sample {index} {tap}"
        for index, (mine, theirs) in enumerate(zip(one[0], other[0], strict=True))
        for tap in mine
        if not torch.equal(mine[tap], theirs[tap])
    ]
    for index, (mine, theirs) in enumerate(zip(one[1], other[1], strict=True)):
        if (mine is None) != (theirs is None) or (mine is not None and not torch.equal(mine, theirs)):
            found.append(f"gradient {index}")
    return found


@pytest.mark.parametrize("tenants", [2, 8])
def test_equal_tenants_get_the_features_and_gradients_of_being_alone_bit_for_bit(
    tiny: Qwen3VLBackbone, tenants: int
) -> None:
    group = equal_tenants(tiny, tenants)
    alone = [train_together(tiny, [tenant])[0] for tenant in group]
    for own, shared in zip(alone, train_together(tiny, group), strict=True):
        assert any(grad is not None and grad.abs().max() > 0 for grad in own[1])
        assert differences(own, shared) == []


@pytest.mark.parametrize("limit", [10_000, 200, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_ragged_tenants_get_the_features_and_gradients_of_being_alone_bit_for_bit(
    tiny: Qwen3VLBackbone, limit: int, threads: int
) -> None:
    torch.set_num_threads(threads)
    backbone = Qwen3VLBackbone(
        model=tiny.model,
        tokenizer=tiny._prompts._tokenizer,
        processing=tiny._processing,
        info=tiny.info,
        max_tokens_per_forward=limit,
    )
    group = ragged_tenants(backbone)
    alone = [train_together(backbone, [tenant])[0] for tenant in group]
    for own, shared in zip(alone, train_together(backbone, group), strict=True):
        assert differences(own, shared) == []


def test_swapped_adapters_are_noticed(tiny: Qwen3VLBackbone) -> None:
    first, second, *_ = equal_tenants(tiny, 2)
    alone = train_together(tiny, [first])[0]
    swapped = train_together(tiny, [(first[0], first[1], second[2]), (second[0], second[1], first[2])])[0]
    assert differences(alone, swapped) != []


def test_a_planted_update_of_a_neighbours_rows_is_noticed(
    tiny: Qwen3VLBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = equal_tenants(tiny, 3)
    alone = train_together(tiny, group[:1])[0]
    plain = linear._low_rank
    monkeypatch.setattr(linear, "_low_rank", lambda rows, run: plain(rows, run[::-1]))
    assert differences(alone, train_together(tiny, group)[0]) != []


def test_a_sample_without_adapter_has_the_bases_own_features(tiny: Qwen3VLBackbone) -> None:
    features = ragged_group(seed=5, samples=3)
    adapters = [make_adapter(tiny, 1), None, make_adapter(tiny, 2)]
    rows = tiny.encode_adapted(features, [TAP] * 3, adapters, False)
    base = tiny.encode(features, [TAP] * 3)
    assert torch.equal(rows[1]["layer:-1"], base[1]["layer:-1"])
    assert not torch.equal(rows[0]["layer:-1"], base[0]["layer:-1"])
    assert not rows[0]["layer:-1"].requires_grad


def test_a_fresh_adapter_changes_nothing(tiny: Qwen3VLBackbone) -> None:
    adapter = LoraAdapter(LoraSpec(), tiny)
    adapter.reset_parameters(torch.Generator().manual_seed(0))
    features = ragged_group(seed=6, samples=2)
    rows = tiny.encode_adapted(features, [TAP] * 2, [adapter] * 2, False)
    for mine, base in zip(rows, tiny.encode(features, [TAP] * 2), strict=True):
        assert torch.equal(mine["layer:-1"], base["layer:-1"])


def test_features_and_gradients_are_those_of_weights_with_the_update_merged_in(tiny: Qwen3VLBackbone) -> None:
    """An independent way: transformers' own forward over W + scaling * B A."""
    adapter, feature = make_adapter(tiny, 3), ragged_group(seed=8, samples=1)[0]
    reference = TransformersForward(tiny)
    modules = dict(reference.model.named_modules())
    with torch.no_grad():
        for path, down_rI, up_Or in zip(adapter.paths, adapter.down, adapter.up, strict=True):
            modules[path].weight += adapter.spec.scaling * up_Or @ down_rI
    own = tiny.encode_adapted([feature], [TAP], [adapter], False)[0]
    torch.testing.assert_close(own["layer:-1"], reference.features(feature)["layer:-1"], rtol=1e-5, atol=1e-5)


def test_the_base_never_gets_a_gradient(tiny: Qwen3VLBackbone) -> None:
    train_together(tiny, equal_tenants(tiny, 2))
    assert all(value.grad is None and not value.requires_grad for value in tiny.model.parameters())


def test_a_module_outside_the_text_layers_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="q_proj"):
        LoraSpec(target_modules=("qkv",))  # type: ignore[arg-type]


def test_an_adapter_of_another_revision_is_refused(tiny: Qwen3VLBackbone) -> None:
    adapter = make_adapter(tiny, 1)
    adapter.base = tiny.info.model_copy(update={"revision": "other"})
    with pytest.raises(ValueError, match="other"):
        tiny.encode_adapted(ragged_group(seed=1, samples=1), [TAP], [adapter], False)
