"""Dedup, depth and grouped LoRA can each be switched off: more is computed then, and no number changes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_runtime.batching import repeats
from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.step import PredictStep
from gpu_runtime.models.backbones import qwen3_vl
from gpu_runtime.models.backbones.base import ALL_SAVINGS, Savings
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.placement.local import load_bases
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import LoraSpec
from gpu_runtime.protocol.messages import WorkloadState
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.clock import DeviceClock
from tests.runtime.test_lora_grouped import differences, make_adapter, ragged_tenants, train_together
from tests.runtime.test_lora_jobs import Tenant, equal, train
from tests.runtime.test_lora_serving import member, policy
from tests.runtime.test_packed_repeats import rows_of_layers
from tests.support.backbones import ragged_group
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, ended, events_of, make_config, metric, running, submit_message

TINY = BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl")
SWITCHES = ("dedup_frames", "truncate_depth", "group_lora")
NONE = Savings(dedup_frames=False, truncate_depth=False, group_lora=False)


def without(*switches: str) -> Qwen3VLBackbone:
    return load_backbone(TINY, savings=replace(ALL_SAVINGS, **dict.fromkeys(switches, False)))


@pytest.fixture(scope="module")
def full() -> Qwen3VLBackbone:
    return without()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    return LeRobotDataset.open(make_dataset(tmp_path_factory.mktemp("data") / "push", cameras=1))


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path / "partitions", 10**8)


def test_each_switch_of_the_configuration_reaches_the_base(tmp_path: Path) -> None:
    for name in SWITCHES:
        config = make_config(tmp_path, tmp_path, **{name: 0})
        assert load_bases(config)["tiny-qwen3-vl"].savings == replace(ALL_SAVINGS, **{name: False})
    assert load_bases(make_config(tmp_path, tmp_path))["tiny-qwen3-vl"].savings == ALL_SAVINGS


def repeated_group() -> tuple[list[VLAFeature], list[set[str]]]:
    """Frames with a key twice, one picture behind other words, and two equal prompts of words alone."""
    frame, other = (replace(one, key=("d", at)) for at, one in enumerate(ragged_group(seed=1, samples=2)))
    words = VLAFeature(images=(), instruction="lift it")
    group = [frame, other, replace(frame), replace(frame, instruction="drop it"), words, replace(words)]
    return group, [{"layer:0"}, {"layer:-1"}, {"vision", "layer:2"}, {"merged"}, {"layer:1"}, {"layer:1"}]


def same(one: list[dict[str, torch.Tensor]], other: list[dict[str, torch.Tensor]]) -> bool:
    return all(equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def test_without_dedup_every_sample_and_picture_runs_to_the_same_rows(full: Qwen3VLBackbone) -> None:
    plain, (group, taps) = without("dedup_frames"), repeated_group()
    once, seen_once = rows_of_layers(full, group, taps)
    patches: list[int] = []
    first = plain.model.visual.blocks[0]
    hook = first.register_forward_hook(lambda _module, args, _output: patches.append(len(args[0])))
    each, seen_each = rows_of_layers(plain, group, taps)
    hook.remove()
    assert same(once, each)
    tokens = [plain.tokens(feature) for feature in group]
    in_text = sum(tokens) - tokens[3]
    assert seen_each[0] == in_text
    assert seen_once[0] == in_text - tokens[2] - tokens[5]
    assert sum(patches) == sum(plain.tap_rows(feature, "vision") for feature in group)
    assert plain.tokens_together(group) == sum(tokens) == full.tokens_together(group) + tokens[2] + tokens[5]


def test_without_truncation_every_sample_runs_through_the_whole_stack_to_the_same_rows(full: Qwen3VLBackbone) -> None:
    plain, group = without("truncate_depth"), ragged_group(seed=5, samples=6)
    taps = [{"layer:0"}, {"layer:-1", "layer:1"}, {"vision"}, {"layer:2"}, {"merged"}, {"layer:4"}]
    short, seen_short = rows_of_layers(full, group, taps)
    whole, seen_whole = rows_of_layers(plain, group, taps)
    assert same(short, whole)
    assert seen_whole == [sum(map(plain.tokens, group))] * plain.info.layers
    assert seen_short[-1] == plain.tokens(group[1])


@pytest.mark.parametrize("limit", [10_000, 200])
def test_without_truncation_adapters_get_the_same_features_and_gradients_bit_for_bit(limit: int) -> None:
    results = []
    for base in (without(), without("truncate_depth")):
        base.limit_tokens(limit)
        results.append(train_together(base, ragged_tenants(base)))
    for one, other in zip(*results, strict=True):
        assert differences(one, other) == []


def gradients(
    base: Qwen3VLBackbone, features: list[VLAFeature], adapters: list[LoraAdapter]
) -> tuple[list[dict[str, torch.Tensor]], list[list[torch.Tensor | None]]]:
    """Rows, and each adapter's gradients of a sum in which every sample has a weight of its own."""
    rows = base.encode_adapted(features, [{"layer:-1"}] * len(features), adapters, True)
    sum(at * row["layer:-1"].square().mean() for at, row in enumerate(rows, start=1)).backward()
    found = [[parameter.grad for parameter in adapter.parameters()] for adapter in dict.fromkeys(adapters)]
    return rows, found


def adapted_repeats(base: Qwen3VLBackbone) -> tuple[list[VLAFeature], list[LoraAdapter]]:
    """Equal prompts of words alone, of two tenants."""
    words = VLAFeature(images=(), instruction="lift it")
    one, other = make_adapter(base, 1, LoraSpec(rank=4)), make_adapter(base, 2, LoraSpec(rank=4))
    return [words, replace(words), words, replace(words)], [one, one, other, other]


def test_of_one_adapters_equal_samples_one_runs_and_its_gradients_are_those_of_all(full: Qwen3VLBackbone) -> None:
    plain = without("dedup_frames")
    once, short = gradients(full, *adapted_repeats(full))
    each, whole = gradients(plain, *adapted_repeats(plain))
    assert same(once, each)
    assert not torch.equal(once[0]["layer:-1"], once[2]["layer:-1"]), "two tenants' adapters are not the same"
    for mine, theirs in zip(short, whole, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    seen: list[int] = []
    layer = full.model.language_model.layers[0]
    hook = layer.register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape[1]))
    features, adapters = adapted_repeats(full)
    full.encode_adapted(features, [{"layer:-1"}] * 4, adapters, False)
    hook.remove()
    assert sum(seen) == 2 * full.tokens(features[0])


def test_a_planted_dedup_across_adapters_is_noticed(full: Qwen3VLBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qwen3_vl, "first_equal", lambda features, owners: repeats.first_equal(features))
    features, adapters = adapted_repeats(full)
    rows = full.encode_adapted(features, [{"layer:-1"}] * 4, adapters, False)
    own = full.encode_adapted(features[2:3], [{"layer:-1"}], adapters[2:3], False)
    assert not torch.equal(rows[2]["layer:-1"], own[0]["layer:-1"])


def forwards_with_adapters(base: Qwen3VLBackbone, patch: pytest.MonkeyPatch) -> list[int]:
    """How many adapters each adapted forward of ``base`` had, from now on."""
    encode, found = base.encode_adapted, list[int]()

    def counted(features, taps, adapters, grad):
        found.append(len({id(adapter) for adapter in adapters if adapter is not None}))
        return encode(features, taps, adapters, grad)

    patch.setattr(base, "encode_adapted", counted)
    return found


def test_without_grouping_every_tenant_trains_in_passes_of_its_own_to_the_same_weights(
    full: Qwen3VLBackbone, data: LeRobotDataset, store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = without("group_lora")
    cases = [(1, 4), (2, 4), (3, 2), (4, None)]
    together = [Tenant(full, data, *case) for case in cases]
    apart = [Tenant(plain, data, *case) for case in cases]
    with monkeypatch.context() as patch:
        grouped, single = forwards_with_adapters(full, patch), forwards_with_adapters(plain, patch)
        for one, other in zip(train(store, together, 2), train(store, apart, 2), strict=True):
            assert one.metrics == other.metrics
    assert (grouped, single) == ([3] * 2, [1] * 6)
    for one, other in zip(together, apart, strict=True):
        assert equal(one.weights(), other.weights())


def test_without_grouping_every_policy_is_asked_in_a_forward_of_its_own_and_answers_the_same(
    full: Qwen3VLBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, forwards = [], []
    for base in (full, without("group_lora")):
        served = [ServedPolicy.freeze(policy(base, seed, rank), base) for seed, rank in [(1, 4), (2, None), (3, 4)]]
        asked = [member(one, f"t{at}") for at, one in enumerate(served)]
        with monkeypatch.context() as patch:
            forwards.append(forwards_with_adapters(base, patch))
            PredictStep(DeviceClock("cpu"), FeatureHandles(0)).run(asked)
        assert [one.failure for one in asked] == [None] * 3
        answers.append([one.decision.actions_BHA for one in asked])
    assert forwards == [[2], [1, 1]]
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one, other)


async def test_jobs_without_any_of_the_savings_learn_the_same_to_the_last_bit(
    tmp_path: Path, full: Qwen3VLBackbone
) -> None:
    (tmp_path / "datasets").mkdir()
    binding = bind(tmp_path / "datasets", make_dataset(tmp_path / "datasets" / "push"))
    losses = []
    for number, base in enumerate((full, load_backbone(TINY, savings=NONE))):
        submits = [job(binding, name, rank) for name, rank in (("one", 4), ("two", 4), ("plain", None))]
        config = make_config(tmp_path / str(number), tmp_path / "datasets", wait_ms=50, feature_store_dtype="float32")
        async with running(config, bases={"tiny-qwen3-vl": base}) as runtime:
            for submit in submits:
                await runtime.master.submit(submit)
            for submit in submits:
                assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
            losses.append([metric(events_of(runtime, submit.job_id), "train/loss") for submit in submits])
    assert [len(values) for values in losses[0]] == [6] * 3
    assert losses[0] == losses[1]


def job(binding, name: str, rank: int | None):
    """Fine-tuning that reads a middle layer."""
    submit = submit_message(binding, job_id=name, tenant_id=name, head=GR00T | {"tap": "layer:2"}, steps=6)
    lora = None if rank is None else LoraSpec(rank=rank, alpha=rank)
    return submit.model_copy(update={"spec": submit.spec.model_copy(update={"lora": lora})})
