"""The packed forward: equal to each sample alone, equal to transformers, and no deeper than the taps ask."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BUILT_IN_BASES, BaseModelEntry
from tests.support.backbones import TransformersForward, ragged_group, random_feature, taps_of


@pytest.fixture(scope="module")
def bases() -> dict[str, Qwen3VLBackbone]:
    return {name: load_backbone(BaseModelEntry(name=name, source=name)) for name in sorted(BUILT_IN_BASES)}


@pytest.fixture(scope="module")
def tiny(bases: dict[str, Qwen3VLBackbone]) -> Qwen3VLBackbone:
    return bases["tiny-qwen3-vl"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def with_token_limit(backbone: Qwen3VLBackbone, limit: int) -> Qwen3VLBackbone:
    """The same resident model, cut into other micro-groups."""
    return Qwen3VLBackbone(
        model=backbone.model,
        tokenizer=backbone._prompts._tokenizer,
        processing=backbone._processing,
        info=backbone.info,
        max_tokens_per_forward=limit,
    )


def assert_equal_to_alone(
    backbone: Qwen3VLBackbone, group: list[VLAFeature], taps: list[frozenset[str]], alone: Qwen3VLBackbone
) -> None:
    grouped = backbone.encode(group, taps)
    for index, (feature, asked, rows) in enumerate(zip(group, taps, grouped, strict=True)):
        own = alone.encode([feature], [asked])[0]
        assert rows.keys() == own.keys() == asked
        for tap in asked:
            assert torch.equal(rows[tap], own[tap]), f"sample {index}, tap {tap}"


@pytest.mark.parametrize(
    ("name", "threads", "samples"), [("tiny-qwen3-vl", 1, 12), ("tiny-qwen3-vl", 2, 4), ("small-qwen3-vl", 1, 8)]
)
def test_a_samples_features_in_a_ragged_group_equal_its_own_alone_bit_for_bit(
    bases: dict[str, Qwen3VLBackbone], name: str, threads: int, samples: int
) -> None:
    torch.set_num_threads(threads)
    group = ragged_group(seed=3, samples=samples, views_min=0)
    assert_equal_to_alone(bases[name], group, [taps_of(feature) for feature in group], bases[name])


@pytest.mark.parametrize("samples", [2, 7, 16])
def test_equal_samples_are_bit_equal_too(tiny: Qwen3VLBackbone, samples: int) -> None:
    rng = np.random.default_rng(samples)
    group = [random_feature(rng, sizes=[(96, 96)] * 2, queries=4) for _ in range(samples)]
    assert_equal_to_alone(tiny, group, [taps_of(feature) for feature in group], tiny)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    samples=st.integers(1, 8),
    limit=st.sampled_from([1, 100, 300, 10_000]),
    data=st.data(),
)
def test_any_group_any_taps_and_any_token_limit_give_the_same_bits(
    tiny: Qwen3VLBackbone, seed: int, samples: int, limit: int, data: st.DataObject
) -> None:
    group = ragged_group(seed, samples, views_min=0)
    taps = [frozenset(data.draw(st.sets(st.sampled_from(sorted(taps_of(feature)))))) for feature in group]
    assert_equal_to_alone(with_token_limit(tiny, limit), group, taps, tiny)


@pytest.mark.parametrize("name", sorted(BUILT_IN_BASES))
def test_the_packed_forward_agrees_with_transformers_own_forward_of_each_sample(
    bases: dict[str, Qwen3VLBackbone], name: str
) -> None:
    reference = TransformersForward(bases[name])
    group = ragged_group(seed=11, samples=6, views_min=0)
    grouped = bases[name].encode(group, [taps_of(feature) for feature in group])
    for feature, rows in zip(group, grouped, strict=True):
        expected = reference.features(feature)
        assert rows.keys() == taps_of(feature)
        for tap, values in rows.items():
            scale = max(1.0, expected[tap].abs().max().item())
            torch.testing.assert_close(
                values, expected[tap], rtol=0, atol=2e-6 * scale, msg=lambda m, t=tap: f"{t}: {m}"
            )


def test_the_last_layer_is_read_after_the_final_norm_however_it_is_counted(tiny: Qwen3VLBackbone) -> None:
    feature = random_feature(np.random.default_rng(0))
    last = tiny.info.layers - 1
    rows = tiny.encode([feature], [{"layer:-1", f"layer:{last}", f"layer:{-tiny.info.layers}", "layer:0"}])[0]
    assert torch.equal(rows["layer:-1"], rows[f"layer:{last}"])
    assert torch.equal(rows[f"layer:{-tiny.info.layers}"], rows["layer:0"])


@pytest.mark.parametrize(
    ("taps", "layers_run", "mergers_run"),
    [({"vision"}, 0, 0), ({"merged"}, 0, 1), ({"layer:2", "layer:0"}, 3, 1), ({"layer:-1", "vision"}, 6, 1)],
)
def test_no_layer_runs_beyond_the_deepest_tap(
    tiny: Qwen3VLBackbone, taps: set[str], layers_run: int, mergers_run: int
) -> None:
    calls: list[str] = []
    layers = [*tiny.model.language_model.layers, tiny.model.visual.merger]
    hooks = [layer.register_forward_hook(lambda module, *_: calls.append(type(module).__name__)) for layer in layers]
    tiny.encode(ragged_group(seed=1, samples=3), [taps] * 3)
    for hook in hooks:
        hook.remove()
    assert calls.count("Qwen3VLTextDecoderLayer") == layers_run
    assert calls.count("Qwen3VLVisionPatchMerger") == mergers_run


def test_a_sample_that_needs_no_text_layer_stays_out_of_the_text_stack(tiny: Qwen3VLBackbone) -> None:
    group = ragged_group(seed=5, samples=4)
    rows_seen: list[int] = []
    hook = tiny.model.language_model.layers[0].register_forward_hook(
        lambda _m, args, _o: rows_seen.append(args[0].shape[1])
    )
    tiny.encode(group, [{"vision"}, {"layer:0"}, {"merged"}, {"layer:-1"}])
    hook.remove()
    assert rows_seen == [tiny.tokens(group[1]) + tiny.tokens(group[3])]


def test_rows_and_widths_are_as_announced(tiny: Qwen3VLBackbone) -> None:
    group = ragged_group(seed=9, samples=5)
    for feature, rows in zip(group, tiny.encode(group, [taps_of(feature) for feature in group]), strict=True):
        for tap, values in rows.items():
            assert values.shape == (tiny.tap_rows(feature, tap), tiny.tap_width(tap))
        assert tiny.tap_rows(feature, "layer:-1") == tiny.tokens(feature)


def test_each_sample_owns_the_memory_of_its_rows(tiny: Qwen3VLBackbone) -> None:
    group = ragged_group(seed=2, samples=3)
    first, second, _ = tiny.encode(group, [{"vision", "layer:-1"}] * 3)
    before = {tap: rows.clone() for tap, rows in second.items()}
    for rows in first.values():
        rows.fill_(torch.nan)
    assert all(torch.equal(second[tap], before[tap]) for tap in before)
    assert all(rows.untyped_storage().nbytes() == rows.numel() * rows.element_size() for rows in second.values())


def test_features_carry_no_graph_and_a_head_can_train_on_them(tiny: Qwen3VLBackbone) -> None:
    rows = tiny.encode(ragged_group(seed=2, samples=1), [{"layer:-1"}])[0]["layer:-1"]
    assert not rows.requires_grad
    head = torch.nn.Linear(tiny.tap_width("layer:-1"), 2)
    head(rows).sum().backward()
    assert head.weight.grad is not None
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in tiny.model.parameters())


def test_training_mode_of_a_holder_changes_no_feature(tiny: Qwen3VLBackbone) -> None:
    group = ragged_group(seed=4, samples=2)
    before = tiny.encode(group, [{"layer:-1"}] * 2)
    holder = torch.nn.ModuleList([tiny.model])
    holder.train()
    assert not tiny.model.training
    assert not any(module.training for module in tiny.model.modules())
    after = tiny.encode(group, [{"layer:-1"}] * 2)
    assert all(torch.equal(a["layer:-1"], b["layer:-1"]) for a, b in zip(before, after, strict=True))


def test_the_models_own_position_state_is_never_touched(tiny: Qwen3VLBackbone) -> None:
    tiny.encode(ragged_group(seed=4, samples=2), [{"layer:-1"}] * 2)
    assert tiny.model.rope_deltas is None


@pytest.mark.parametrize(
    ("taps", "message"),
    [
        ({"layer:6"}, r"sample 1: tap 'layer:6'.*6 text layers.*\[-6, 5\]"),
        ({"layer:-7"}, r"sample 1: tap 'layer:-7'"),
        ({"pooled"}, r"sample 1: tap 'pooled': allowed are vision, merged, query and layer:n"),
        ({"query"}, r"sample 1: query_tokens.*got 0"),
    ],
)
def test_a_tap_the_sample_cannot_be_read_at_is_refused_by_name(
    tiny: Qwen3VLBackbone, taps: set[str], message: str
) -> None:
    feature = random_feature(np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        tiny.encode([feature, feature], [{"vision"}, taps])


def test_an_image_that_is_no_multiple_of_the_merged_patch_is_refused(tiny: Qwen3VLBackbone) -> None:
    feature = random_feature(np.random.default_rng(0), sizes=[(64, 80)])
    with pytest.raises(ValueError, match="sample 0: image size: 64x80 pixels, both must be multiples of 32"):
        tiny.encode([feature], [{"vision"}])


def test_a_model_whose_attention_was_switched_never_answers(tiny: Qwen3VLBackbone) -> None:
    text = tiny.model.language_model.config
    before, text._attn_implementation = text._attn_implementation, "sdpa"
    with pytest.raises(RuntimeError, match="attention: 'sdpa', needed is"):
        tiny.encode(ragged_group(seed=1, samples=1), [{"vision"}])
    text._attn_implementation = before


def test_an_empty_group_needs_no_forward(tiny: Qwen3VLBackbone) -> None:
    assert tiny.encode([], []) == []
    with pytest.raises(ValueError, match="taps: 1 entries for 0 samples"):
        tiny.encode([], [{"vision"}])
