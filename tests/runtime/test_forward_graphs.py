"""Recorded forwards: replaying one for new numbers equals launching it, and whoever holds rows keeps them.

Here a recording is a trace of tensor operations with everything else in it fixed, as in a CUDA graph; what the key
forgot would be wrong at the next replay.
"""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.graphs import REPEATS, GraphCache, Tensors, Work
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import LoraSpec
from tests.support.backbones import ragged_group, taps_of

ENTRY = BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl")


def traced(work: Work, inputs: Tensors) -> tuple[Callable[[], None], Tensors]:
    """A recording on the CPU. Its outputs are the same memory each time, as a graph's are."""
    with torch.no_grad():
        trace = make_fx(lambda *values: work(*values))(*inputs)
        outputs = tuple(output.clone() for output in trace(*inputs))

    def replay() -> None:
        with torch.no_grad():
            for place, value in zip(outputs, trace(*inputs), strict=True):
                place.copy_(value)

    return replay, outputs


def recorded(plain: Qwen3VLBackbone, graphs: GraphCache) -> Qwen3VLBackbone:
    """The same resident model behind a cache of recordings."""
    return Qwen3VLBackbone(
        model=plain.model,
        tokenizer=plain._prompts._tokenizer,
        processing=plain._processing,
        info=plain.info,
        max_tokens_per_forward=768,
        graphs=graphs,
    )


@pytest.fixture(scope="module")
def plain() -> Qwen3VLBackbone:
    return load_backbone(ENTRY)


def other_pictures(group: list[VLAFeature], seed: int) -> list[VLAFeature]:
    """Other numbers of the same shapes: new pictures, and words of the same length."""
    rng = np.random.default_rng(seed)
    return [
        VLAFeature(
            images=tuple(rng.integers(0, 256, image.shape, dtype=np.uint8) for image in feature.images),
            instruction="".join(rng.choice(list("abcdefgh"), len(feature.instruction))),
            query_tokens=feature.query_tokens,
        )
        for feature in group
    ]


def assert_same(found: list[dict[str, Tensor]], expected: list[dict[str, Tensor]]) -> None:
    for rows, own in zip(found, expected, strict=True):
        assert rows.keys() == own.keys()
        assert all(torch.equal(rows[tap], own[tap]) for tap in own)


def test_replayed_groups_of_any_composition_equal_launched_ones_bit_for_bit(plain: Qwen3VLBackbone) -> None:
    graphs = GraphCache(64, record=traced)
    base = recorded(plain, graphs)
    group = ragged_group(seed=1, samples=5)
    taps = [taps_of(feature) for feature in group]
    for turn in range(REPEATS + 2):
        again = other_pictures(group, seed=turn)
        assert_same(base.encode(again, taps), plain.encode(again, taps))
    assert graphs.replays > 0


def test_rows_of_an_earlier_replay_stay_as_they_were(plain: Qwen3VLBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    group = [VLAFeature(images=(), instruction="x" * letters) for letters in (9, 17)]
    taps = [frozenset({"layer:1"})] * 2

    def twice() -> tuple[list[dict[str, Tensor]], list[VLAFeature]]:
        base = recorded(plain, GraphCache(8, record=traced))
        for _ in range(REPEATS):
            base.encode(group, taps)
        found = base.encode(group, taps)
        base.encode(other_pictures(group, seed=7), taps)
        return found, group

    found, asked = twice()
    assert_same(found, plain.encode(asked, taps))
    monkeypatch.setattr(Tensor, "clone", lambda self, **_: self)
    found, asked = twice()
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        assert_same(found, plain.encode(asked, taps))


def test_a_key_without_the_lengths_would_be_noticed(plain: Qwen3VLBackbone) -> None:
    class Forgetful(GraphCache):
        def run(self, key: object, work: Work, inputs: Tensors) -> Tensors:
            return super().run("any", work, inputs)

    base = recorded(plain, Forgetful(8, record=traced))
    one, other = (
        [VLAFeature(images=(), instruction="x" * letters) for letters in lengths] for lengths in ((10, 20), (14, 16))
    )
    assert sum(map(plain.tokens, other)) == sum(map(plain.tokens, one)), "another shape would be told apart anyway"
    taps = [frozenset({"layer:-1"})] * 2
    for _ in range(REPEATS + 1):
        assert_same(base.encode(one, taps), plain.encode(one, taps))
    with pytest.raises(AssertionError):
        assert_same(base.encode(other, taps), plain.encode(other, taps))


def test_adapters_are_never_recorded_and_leave_recordings_alone(plain: Qwen3VLBackbone) -> None:
    graphs = GraphCache(8, record=traced)
    base = recorded(plain, graphs)
    adapter = LoraAdapter(LoraSpec(rank=2), plain)
    with torch.no_grad():
        for own in (*adapter.down, *adapter.up):
            own.normal_(generator=torch.Generator().manual_seed(len(own)))
    group = [VLAFeature(images=(), instruction="x" * letters) for letters in (12, 20)]
    taps = [frozenset({"layer:-1"})] * 2
    for _ in range(REPEATS + 1):
        base.encode(group, taps)
    adapted = base.encode_adapted(group, taps, [adapter] * 2, grad=False)
    assert_same(adapted, plain.encode_adapted(group, taps, [adapter] * 2, grad=False))
    assert not torch.equal(adapted[0]["layer:-1"], plain.encode(group, taps)[0]["layer:-1"])
    assert_same(base.encode(group, taps), plain.encode(group, taps))


def test_no_more_are_kept_than_allowed_and_an_evicted_shape_is_recorded_when_it_comes_back() -> None:
    made: list[int] = []

    def counted(work: Work, inputs: Tensors) -> tuple[Callable[[], None], Tensors]:
        made.append(len(inputs[0]))
        return traced(work, inputs)

    graphs = GraphCache(2, record=counted)
    for size in (1, 1, 2, 2, 3, 3, 1, 1, 1, 3):
        (found,) = graphs.run("double", lambda x: (2 * x,), (torch.full((size,), float(size)),))
        assert torch.equal(found, torch.full((size,), 2.0 * size))
        assert len(graphs._kept) <= 2
    assert made == [1, 2, 3, 1]


def test_what_cannot_be_recorded_is_launched_and_tried_no_more() -> None:
    tries: list[int] = []

    def fails(work: Work, inputs: Tensors) -> tuple[Callable[[], None], Tensors]:
        tries.append(1)
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs = GraphCache(2, record=fails)
    for value in range(6):
        assert float(graphs.run("half", lambda x: (x / 2,), (torch.tensor([float(value)]),))[0]) == value / 2
    assert len(tries) == 1


def test_threads_that_share_a_recording_get_their_own_numbers() -> None:
    graphs = GraphCache(1, record=traced)
    wrong: list[float] = []

    def ask(number: int) -> None:
        for turn in range(200):
            value = float(1000 * number + turn)
            (found,) = graphs.run("next", lambda x: (x + 1,), (torch.full((64,), value),))
            if not bool((found == value + 1).all()):
                wrong.append(value)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert graphs.replays > 700


def test_nothing_is_recorded_on_a_cpu_or_when_none_may_be_kept() -> None:
    base = load_backbone(ENTRY, cuda_graphs=8)
    group = ragged_group(seed=1, samples=2)
    for _ in range(REPEATS + 1):
        base.encode(group, [taps_of(feature) for feature in group])
    assert base._forward._graphs.replays == 0
