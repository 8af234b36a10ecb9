"""From whole episodes to the rows of an update: every reward is credited once, and to whom it belongs.

Shapes: C executed steps per chunk.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.protocol.algorithms import AlgorithmSpec, GrpoSpec, PpoSpec, ReinforceSpec
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.rl.advantages import assemble, estimate, needs_final_value, rollout_metrics
from gpu_runtime.training.rl.batch import RlBatch, empty_batch, pack_rl_batch, unpack_rl_batch
from gpu_runtime.training.rl.errors import NonFiniteReward, RolloutMismatch
from gpu_runtime.training.rl.experience import Decision, Episode
from gpu_runtime.training.rl.methods.registry import METHODS

PLAIN = PpoSpec(type="ppo", gamma=1.0, gae_lambda=1.0, normalize_advantages=False)


def decision(rewards: Sequence[float], *, executed: int = 2, value: float | None = 0.5, **fields_: Any) -> Decision:
    """Two steps a chunk, three action dims; the picture tells chunks apart."""
    paint = int(abs(sum(rewards)) * 10) % 256 if np.isfinite(rewards).all() else 0
    defaults: dict[str, Any] = {
        "feature": VLAFeature(images=(np.full((4, 4, 3), paint, np.uint8),), instruction="push"),
        "state_S": np.array(rewards, np.float32),
        "handle": f"h{paint}",
        "trace": {"log_prob": np.full((2, 3), sum(rewards), np.float32), "step": np.int64(1)},
        "value": value,
        "progress": None,
        "version": 3,
        "rewards_C": np.array(rewards, np.float32),
        "executed": executed,
    }
    return Decision(**defaults | fields_)


def episode(*decisions: Decision, seed: int = 0, group: int = 0, ends: str = "terminated", **fields_: Any) -> Episode:
    defaults: dict[str, Any] = {
        "seed": seed,
        "group": group,
        "decisions": decisions,
        "terminated": ends == "terminated",
        "truncated": ends == "truncated",
        "success_once": ends == "terminated",
        "success_at_end": ends == "terminated",
        "env_return": 7.0,
        "steps": sum(one.executed for one in decisions),
        "final_value": None,
        "initial_state": f"s{seed}",
    }
    return Episode(**defaults | fields_)


@pytest.mark.parametrize(
    ("bootstrap", "ends", "tail"),
    [
        ("standard", "terminated", 0.0),
        ("standard", "truncated", 4.0),
        ("always", "terminated", 4.0),
        ("never", "truncated", 0.0),
    ],
)
def test_returns_go_on_behind_the_end_only_where_the_bootstrap_says_so(bootstrap: str, ends: str, tail: float):
    spec = PLAIN.model_copy(update={"bootstrap": bootstrap})
    wanted = needs_final_value(spec, terminated=ends == "terminated", truncated=ends == "truncated")
    assert wanted == (tail > 0)
    one = episode(decision([1, 2]), decision([3, 0], executed=1), ends=ends, final_value=4.0)
    found = estimate(spec, [one])
    assert found.returns_N is not None
    assert found.returns_N.tolist() == pytest.approx([6 + tail, 3 + tail])
    assert found.advantage_N.tolist() == pytest.approx([5.5 + tail, 2.5 + tail])
    assert found.mask_NC.tolist() == [[True, True], [True, False]]


def test_every_algorithm_a_job_can_ask_for_is_registered():
    union = get_args(get_args(AlgorithmSpec)[0])
    assert {get_args(spec.model_fields["type"].annotation)[0] for spec in union} == METHODS.keys()


def test_a_final_value_that_the_bootstrap_needs_and_nobody_asked_for_is_refused():
    with pytest.raises(RolloutMismatch, match="final_value of seed 9: missing"):
        estimate(PLAIN, [episode(decision([1, 2]), seed=9, ends="truncated")])
    with pytest.raises(RolloutMismatch, match=r"decisions\[0\].value: missing"):
        estimate(PLAIN, [episode(decision([1, 2], value=None))])


def test_episodes_of_different_lengths_lie_behind_each_other_in_their_order():
    long = episode(decision([1, 0]), decision([2, 0]), decision([3, 0]), seed=1)
    short = episode(decision([10, 0]), seed=2)
    batch = assemble(PLAIN, [long, short])
    assert batch.episode_N.tolist() == [0, 0, 0, 1]
    assert batch.returns_N is not None
    assert batch.returns_N.tolist() == [6, 5, 3, 10]
    assert batch.state_NS is not None
    assert batch.state_NS[:, 0].tolist() == [1, 2, 3, 10]
    assert [int(image[0, 0, 0]) for image in batch.images[0]] == [10, 20, 30, 100]
    assert batch.trace["log_prob"][:, 0, 0].tolist() == [1, 2, 3, 10]
    assert batch.trace["step"].tolist() == [1] * 4
    assert batch.version_N.tolist() == [3] * 4


def test_advantages_are_normalised_over_the_whole_batch_and_their_own_spread_is_told():
    batch = assemble(PpoSpec(type="ppo"), [episode(decision([n, 0]), seed=n) for n in range(8)])
    assert batch.advantage_N.mean() == pytest.approx(0, abs=1e-6)
    assert batch.advantage_N.std(ddof=1) == pytest.approx(1, rel=1e-3)
    assert batch.statistics["advantage_std"] == pytest.approx(np.std(np.arange(8), ddof=1))


def groups(*returns: Sequence[float]) -> list[Episode]:
    return [
        episode(decision([one, 0], value=None), seed=at, group=at) for at, group in enumerate(returns) for one in group
    ]


def test_a_group_that_is_filtered_leaves_no_row_and_is_counted():
    spec = GrpoSpec(type="grpo", group_size=2, filter_low=1.0, filter_high=5.0)
    batch = assemble(spec, groups([2, 4], [90, 100], [3, 3]))
    assert batch.episode_N.tolist() == [0, 1, 4, 5]
    assert batch.advantage_N.tolist() == pytest.approx([-0.7071, 0.7071, 0, 0], abs=1e-3)
    assert batch.returns_N is None
    assert batch.statistics["filtered_fraction"] == batch.statistics["zero_advantage_fraction"] == pytest.approx(1 / 3)


def test_a_batch_of_which_nothing_is_left_is_legal():
    spec = GrpoSpec(type="grpo", group_size=2, filter_low=1.0, filter_high=5.0)
    filtered = assemble(spec, groups([90, 100]))
    assert (len(filtered), filtered.statistics["filtered_fraction"]) == (0, 1)
    assert len(assemble(spec, [])) == len(assemble(spec, [episode()])) == 0


def test_reinforce_compares_within_the_groups_its_baseline_asks_for():
    alone = ReinforceSpec(type="reinforce", baseline="leave_one_out", group_size=2, normalize_advantages=False)
    assert assemble(alone, groups([2, 4], [10, 10])).advantage_N.tolist() == [-2, 2, 0, 0]
    batch = ReinforceSpec(type="reinforce", baseline="batch_mean", normalize_advantages=False)
    assert assemble(batch, groups([2, 4], [10, 10])).advantage_N.tolist() == [-4.5, -2.5, 3.5, 3.5]


@pytest.mark.parametrize("algorithm", [PLAIN, GrpoSpec(type="grpo"), ReinforceSpec(type="reinforce")])
def test_a_reward_that_is_no_number_spoils_the_batch_and_no_weight(algorithm: AlgorithmSpec):
    with pytest.raises(NonFiniteReward):
        assemble(algorithm, [episode(decision([1, np.nan])), episode(decision([1, 1]), seed=1)])
    behind = decision([1, np.nan], executed=1)
    assert np.isfinite(assemble(algorithm, [episode(behind), episode(decision([1, 1]))]).advantage_N).all()


def test_an_episode_that_cannot_be_one_is_refused():
    with pytest.raises(RolloutMismatch, match="neither terminated nor truncated"):
        episode(decision([1, 1]), ends="never")
    with pytest.raises(RolloutMismatch, match="5 steps, its decisions took 2"):
        episode(decision([1, 1]), steps=5)
    with pytest.raises(RolloutMismatch, match="executed: 3, allowed: 1 to 2"):
        episode(decision([1, 1], executed=3))
    mixed = [episode(decision([1, 1])), episode(decision([1, 1], trace={"log_prob": np.zeros((2, 3), np.float32)}))]
    with pytest.raises(RolloutMismatch, match="allowed: all alike"):
        assemble(PLAIN, mixed)
    halves = [episode(decision([1, 1])), episode(decision([1, 1], progress=0.5))]
    with pytest.raises(RolloutMismatch, match="progress: some decisions differ"):
        assemble(PLAIN, halves)


def equal(a: RlBatch, b: RlBatch) -> bool:
    for field in fields(RlBatch):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if field.name == "trace":
            alike = one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
        elif field.name == "images":
            alike = len(one) == len(other) and all(map(np.array_equal, one, other))
        elif isinstance(one, np.ndarray):
            alike = one.dtype == other.dtype and np.array_equal(one, other)
        else:
            alike = one == other
        if not alike:
            return False
    return True


def test_a_batch_comes_back_from_its_partition_as_it_went_in(tmp_path: Path):
    store = PartitionStore(tmp_path, 10**6)
    full = assemble(PLAIN, [episode(decision([1, 0], progress=0.25), decision([2, 0], progress=0.5))])
    told = replace(full, instructions=("push", "pull"), handles=("", "h"))
    words = replace(assemble(GrpoSpec(type="grpo"), groups([1, 2])), images=())
    for name, batch in {"full": told, "words": words, "empty": empty_batch(2)}.items():
        assert store.put(name, *pack_rl_batch(batch)) > 0
        assert equal(unpack_rl_batch(*store.open(name)), batch), name
    with pytest.raises(RolloutMismatch, match="kind 'sft', allowed: 'rl'"):
        unpack_rl_batch({}, {"instructions": "[]"})


def test_rows_that_do_not_belong_together_make_no_batch():
    full = assemble(PLAIN, [episode(decision([1, 0]), decision([2, 0]))])
    with pytest.raises(RolloutMismatch, match="handles: 1 rows, allowed: 2"):
        replace(full, handles=("h",))
    with pytest.raises(RolloutMismatch, match="mask: 1 rows"):
        replace(full, mask_NC=full.mask_NC[:1])


def test_what_a_rollout_was_like_is_told_as_the_environment_pays_it_and_as_it_is_trained_on():
    won = episode(decision([1, 2]), decision([3, 9], executed=1), seed=1)
    lost = episode(decision([0, 0]), seed=2, ends="truncated", env_return=1.0, success_once=True)
    assert rollout_metrics([won, lost, lost]) == pytest.approx(
        {
            "rollout/return": 3.0,
            "rollout/shaped_return": 2.0,
            "rollout/success_once": 1.0,
            "rollout/success_at_end": 1 / 3,
            "rollout/episode_steps": 7 / 3,
            "rollout/episodes": 3.0,
            "rollout/env_steps": 7.0,
            "rollout/distinct_starts": 2.0,
        }
    )
