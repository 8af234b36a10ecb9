"""Updates on features that a rollout left under handles are those on features computed again, to the last bit."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.models.actor_critic import ActorCritic
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.rl.batch import RlBatch
from gpu_runtime.training.rl.rows import Rows
from tests.runtime.test_rl_training import make, member, play, step

CASES = [("mlp", "ppo"), ("mlp", "grpo"), ("sde", "ppo"), ("noise", "grpo")]
EPOCHS = {"epochs": 3, "minibatch_size": 4}
UPDATES = 2


@pytest.fixture(scope="module")
def base() -> Backbone:
    torch.set_num_threads(1)
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path, 10**8)


async def played(
    base: Backbone,
    case: str = "mlp",
    algorithm: str = "ppo",
    handles: FeatureHandles | None = None,
    **training: Any,
) -> tuple[RlSlot, RlBatch, FeatureHandles]:
    """A slot, what it played, and the handles that the inference service filled."""
    kept = FeatureHandles(10**8) if handles is None else handles
    slot = make(base, case, algorithm, training=EPOCHS | training, algorithm_options={"target_kl": None})
    batch, *_ = await play(slot, base, kept)
    return slot, batch, kept


def train(
    slot: RlSlot, batch: RlBatch, base: Backbone, store: PartitionStore, handles: FeatureHandles | None
) -> list[dict[str, float]]:
    """Several updates on one batch; the metrics of each but the share of hits."""
    metrics = []
    for _ in range(UPDATES):
        part = member(store, base, slot, batch, "alice")
        step(store, [part], handles)
        assert part.failure is None, part.failure
        metrics.append({name: value for name, value in part.metrics.items() if name != "train/feature_hits"})
    return metrics


def state(slot: RlSlot) -> dict[str, Any]:
    """Weights, optimizer and random state by name, as tensors and numbers."""
    found: dict[str, Any] = {f"weights.{name}": value.detach() for name, value in slot.named_parameters().items()}
    for index, entries in slot.optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{index}.{name}": value for name, value in entries.items()}
    return found | {"random": slot.generator.get_state(), "updates": slot.updates, "step": slot.step}


def differences(one: RlSlot, other: RlSlot) -> list[str]:
    """Names of what is not equal to the last bit."""
    first, second = state(one), state(other)
    assert first.keys() == second.keys()
    return [
        name
        for name, value in first.items()
        if not (torch.equal(value, second[name]) if isinstance(value, torch.Tensor) else value == second[name])
    ]


@pytest.mark.parametrize(("case", "algorithm"), CASES)
async def test_updates_with_handles_are_those_without_to_the_last_bit(case, algorithm, base, store, monkeypatch):
    with_handles, batch, kept = await played(base, case, algorithm)
    without = copy.deepcopy(with_handles)
    expected = train(without, batch, base, store, None)

    def never(*arguments: Any) -> None:
        raise AssertionError("a backbone forward, with all features at hand")

    monkeypatch.setattr(type(base), "encode", never)
    found = train(with_handles, batch, base, store, kept)
    assert found == expected
    assert found[0]["train/epochs"] == EPOCHS["epochs"]
    assert with_handles.updates > 2 * UPDATES
    assert differences(with_handles, without) == []


async def test_a_row_edited_under_its_handle_is_noticed(base, store):
    with_handles, batch, kept = await played(base)
    without = copy.deepcopy(with_handles)
    rows = kept.peek("alice", batch.handles[0])
    assert rows is not None
    for value in rows.values():
        value.add_(1e-2)  # planted
    train(with_handles, batch, base, store, kept)
    train(without, batch, base, store, None)
    assert any(name.startswith("weights.") for name in differences(with_handles, without))


async def test_a_handle_of_another_observation_is_refused_and_changes_nothing(base, store):
    slot, batch, kept = await played(base)
    before = copy.deepcopy(slot)
    other = next(name for name in batch.handles if name != batch.handles[0])
    part = member(store, base, slot, replace(batch, handles=(other, *batch.handles[1:])), "alice")
    step(store, [part], kept)
    assert part.failure is not None
    assert differences(slot, before) == []


async def test_features_evicted_between_two_updates_are_computed_again_with_the_same_result(base, store):
    slot, batch, kept = await played(base)
    without = copy.deepcopy(slot)
    one = kept.peek("alice", batch.handles[0])
    assert one is not None
    small = FeatureHandles(2 * sum(value.numel() * value.element_size() for value in one.values()))
    shares = []
    for handles in (kept, small, small):
        parts = member(store, base, slot, batch, "alice"), member(store, base, without, batch, "alice")
        step(store, [parts[0]], handles)
        step(store, [parts[1]], None)
        shares.append(parts[0].metrics["train/feature_hits"])
        assert differences(slot, without) == []
    assert shares[0] == 1
    assert shares[1] == 0
    assert 0 < shares[2] < 1, "two rows are still there, the others went"


async def test_many_rows_never_take_more_bytes_than_allowed(base):
    _, batch, kept = await played(base)
    rows = kept.peek("alice", batch.handles[0])
    assert rows is not None
    size = sum(value.numel() * value.element_size() for value in rows.values())
    limit = 5 * size + size // 2
    bounded = FeatureHandles(limit)
    for number in range(50):
        bounded.put_rows(("alice", "bob")[number % 2], "slot", f"row-{number}", rows)
        assert bounded.live_bytes <= limit
    assert bounded.live_bytes == 5 * size
    assert bounded.holds("bob", "row-49")
    assert not bounded.holds("alice", "row-0")


async def test_zero_bytes_switch_handles_off_and_change_no_result(base, store):
    off = FeatureHandles(0)
    slot, batch, _ = await played(base, handles=off)
    without = copy.deepcopy(slot)
    part = member(store, base, slot, batch, "alice")
    step(store, [part], off)
    step(store, [member(store, base, without, batch, "alice")], None)
    assert off.live_bytes == 0
    assert part.metrics["train/feature_hits"] == 0
    assert differences(slot, without) == []


@pytest.mark.parametrize("planted", [False, True])
async def test_features_pooled_once_for_the_critic_make_the_updates_of_those_pooled_in_every_minibatch(
    planted, base, store, monkeypatch
):
    once, batch, kept = await played(base, minibatch_size=3)
    each, plain_pool = copy.deepcopy(once), ActorCritic.pool

    def value(rows: Rows, part: torch.Tensor) -> torch.Tensor:
        """As it was: the critic pools what it is asked about."""
        progress = rows._of(rows._progress_N, part)
        return rows._slot.models.value(rows._chosen(part), rows._of(rows._state_NS, part), progress)

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "value", value)
        expected = train(each, batch, base, store, kept)
    pooled = []

    def counted(models: ActorCritic, features: Any) -> torch.Tensor:
        pooled.append(len(features))
        return plain_pool(models, features) * (1 + 1e-6 * planted)

    monkeypatch.setattr(ActorCritic, "pool", counted)
    found = train(once, batch, base, store, kept)
    assert pooled == [len(batch)] * UPDATES
    assert len(batch) % 3 == 1, "a last minibatch of one row takes another way through torch"
    assert (found == expected) is not planted
    assert bool(differences(once, each)) is planted
