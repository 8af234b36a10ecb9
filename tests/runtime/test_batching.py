"""Features, layouts, packing and unpacking, without a model."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.batching.collate import PreparedSample, Segments, collate
from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.layout import ImageGrid, token_layout
from gpu_runtime.batching.microgroups import micro_groups
from gpu_runtime.batching.scatter import scatter
from gpu_runtime.batching.taps import TapKind, parse_tap, plan_taps
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.backbones.built_in import built_in_config

IMAGE = np.zeros((32, 32, 3), np.uint8)
with torch.device("meta"):
    WITHOUT_WEIGHTS = Qwen3VLModel(built_in_config("tiny-qwen3-vl"))
SMALL_GRID = ImageGrid(2, 2, 2)
grids = st.builds(lambda rows, columns: ImageGrid(rows * 2, columns * 2, 2), st.integers(1, 5), st.integers(1, 5))


def prepared(length: int, *, grid: ImageGrid = SMALL_GRID, queries: int = 0) -> PreparedSample:
    """A sample of ``length`` tokens with one view."""
    head = length - grid.tokens - 2
    return PreparedSample(
        ids_L=np.arange(length),
        layout=token_layout(head=head, grids=(grid,), tail=0),
        query_index_Q=np.arange(length - queries, length),
        images=(IMAGE,),
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"images": (IMAGE, IMAGE.astype(np.float32))}, r"images\[1\]: expected uint8 \[H, W, 3\], got float32"),
        ({"images": (np.zeros((3, 32, 32), np.uint8),)}, r"images\[0\]: .*got uint8 \[3, 32, 32\]"),
        ({"images": (np.zeros((0, 32, 3), np.uint8),)}, r"images\[0\]"),
        ({"images": (IMAGE,), "query_tokens": -1}, "query_tokens: -1 is negative"),
    ],
)
def test_a_malformed_feature_is_refused_by_field(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VLAFeature(instruction="push", **fields)  # type: ignore[arg-type]


def test_a_batch_becomes_one_feature_per_row_with_its_views_in_order() -> None:
    rng = np.random.default_rng(0)
    views = tuple(rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8) for _ in range(3))
    batch = SampleBatch(
        images=views,
        instructions=("push", "pick"),
        state_BS=None,
        actions_BHA=np.zeros((2, 4, 3), np.float32),
        mask_BH=np.ones((2, 4), bool),
    )
    features = to_features(batch, query_tokens=4)
    assert [feature.instruction for feature in features] == ["push", "pick"]
    assert all(feature.query_tokens == 4 for feature in features)
    for row, feature in enumerate(features):
        assert all(np.array_equal(image, view[row]) for image, view in zip(feature.images, views, strict=True))


@given(head=st.integers(1, 9), views=st.lists(grids, min_size=1, max_size=4), tail=st.integers(1, 9))
def test_cached_positions_equal_the_models_own_rope_index(head: int, views: list[ImageGrid], tail: int) -> None:
    layout = token_layout(head=head, grids=tuple(views), tail=tail)
    kinds = torch.zeros(1, layout.length, dtype=torch.int)
    kinds[0, torch.from_numpy(copy.copy(layout.image_index_M))] = 1
    expected, _ = WITHOUT_WEIGHTS.get_rope_index(
        torch.zeros(1, layout.length, dtype=torch.long),
        kinds,
        image_grid_thw=torch.tensor([[1, grid.rows, grid.columns] for grid in views]),
    )
    assert np.array_equal(layout.positions_3L, expected[:, 0].numpy())


def test_a_layout_is_computed_once_and_cannot_be_written() -> None:
    first = token_layout(head=3, grids=(ImageGrid(4, 4, 2),), tail=5)
    assert token_layout(head=3, grids=(ImageGrid(4, 4, 2),), tail=5) is first
    with pytest.raises(ValueError, match="read-only"):
        first.positions_3L[0, 0] = 7


def test_packing_places_every_index_in_its_own_samples_range() -> None:
    samples = [prepared(9, queries=2), prepared(14, grid=ImageGrid(4, 4, 2)), prepared(7, queries=1)]
    batch = collate(samples, depths=[6, 6, 0])
    assert batch.tokens.lengths == (9, 14)
    assert batch.ids_N.tolist() == [*range(9), *range(14)]
    assert batch.image_index_M.tolist() == [7, 9 + 9, 9 + 10, 9 + 11, 9 + 12]
    assert batch.query_index_Q.tolist() == [7, 8]
    assert batch.query_counts == (2, 0)
    assert batch.patch_counts == (4, 16, 4)
    assert batch.image_token_counts == (1, 4, 1)
    assert len(batch.images) == 3


@given(st.lists(st.integers(1, 6), max_size=20))
def test_runs_of_equal_segments_cover_the_packed_axis_exactly(lengths: list[int]) -> None:
    segments = Segments.of(lengths)
    assert [run.length for run in segments.runs for _ in range(run.count)] == lengths
    assert [run.start for run in segments.runs] == np.cumsum([0, *(r.count * r.length for r in segments.runs)])[
        :-1
    ].tolist()
    assert segments.offsets[-1] == segments.total == sum(lengths)


@given(
    lengths=st.lists(st.integers(4, 60), max_size=20),
    data=st.data(),
    max_tokens=st.integers(1, 150),
)
def test_micro_groups_hold_every_sample_once_within_the_limit(
    lengths: list[int], data: st.DataObject, max_tokens: int
) -> None:
    needs_text = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    groups = micro_groups(
        [prepared(n) for n in lengths], depths=[6 * needed for needed in needs_text], max_tokens=max_tokens
    )
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or sum(lengths[index] for index in group) <= max_tokens
        text = [needs_text[index] for index in group]
        assert text == sorted(text, reverse=True), "samples for the text stack come first"


def test_neighbouring_groups_could_not_have_been_one() -> None:
    lengths = [30, 30, 30, 30, 30]
    groups = micro_groups([prepared(n) for n in lengths], depths=[6] * 5, max_tokens=100)
    assert [len(group) for group in groups] == [3, 2]


def test_scatter_returns_own_copies_to_those_who_asked() -> None:
    rows = torch.arange(12.0).view(6, 2)
    first, second, third = scatter(rows, [1, 3, 2], [True, False, True])
    assert second is None
    assert torch.equal(first, rows[:1])
    assert torch.equal(third, rows[4:])
    first.zero_()
    assert rows[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "kind", "layer"),
    [
        ("vision", TapKind.VISION, None),
        ("merged", TapKind.MERGED, None),
        ("query", TapKind.QUERY, 5),
        ("layer:-1", TapKind.LAYER, 5),
        ("layer:0", TapKind.LAYER, 0),
        ("layer:-6", TapKind.LAYER, 0),
    ],
)
def test_a_tap_names_one_place_of_the_base(text: str, kind: TapKind, layer: int | None) -> None:
    tap = parse_tap(text, layers=6)
    assert (tap.kind, tap.layer) == (kind, layer)


@pytest.mark.parametrize(
    "text", ["layer", "layer:", "layer:--1", "layer:x", "layer:6", "layer:-7", "pool", "vision:1", ""]
)
def test_an_unknown_tap_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"tap '.*': (allowed are|the base has 6 text layers)"):
        parse_tap(text, layers=6)


def test_a_plan_is_the_union_of_the_taps_and_no_deeper() -> None:
    plan = plan_taps([parse_tap(text, layers=6) for text in ("vision", "layer:1", "layer:3")])
    assert (plan.merged, plan.layers, plan.depth) == (False, {1, 3}, 4)
    assert plan_taps([parse_tap("merged", layers=6)]).depth == 0
