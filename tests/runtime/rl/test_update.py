"""The update of one policy version: what it changes, what it must leave alone, and what it says it did.

Shapes: N chunks.
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_runtime.models.errors import CheckpointError, NonFiniteLoss
from gpu_runtime.models.rl_checkpoint import load_rl_slot, save_rl_slot
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.training.rl.batch import empty_batch
from gpu_runtime.training.rl.errors import FutureVersion, OptionRefused, RolloutMismatch
from gpu_runtime.training.rl.update import check_options, update
from tests.support.exploration import CASES
from tests.support.policies import Problem, tap_width
from tests.support.rl_training import ALGORITHMS, experience, job_slot, log_prob, rl_job

EVERY_ALGORITHM = list(ALGORITHMS)


def everything(slot: RlSlot) -> dict[str, Any]:
    """All state that a step may change, copied; what fitting learned included."""
    critic = slot.models.critic
    return {
        "actor": {name: value.clone() for name, value in slot.models.actor.state_dict().items()},
        "critic": {} if critic is None else {name: value.clone() for name, value in critic.state_dict().items()},
        "moments": copy.deepcopy(slot.optimizer.state_dict()["state"]),
        "random": slot.generator.get_state(),
        "counters": (slot.step, slot.updates, slot.partitions, tuple(slot.consumed)),
    }


def same(a: Any, b: Any) -> bool:
    """Bit equality of nested state."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def steps(slot: RlSlot, problem: Problem, count: int, first: int = 0) -> list[dict[str, float]]:
    """So many versions, each from experience of its own."""
    assert slot.job is not None
    done = []
    for at in range(first, first + count):
        done.append(update(slot, *experience(slot, problem, seed=at), slot.job, partition_id=f"p{at}"))
    return done


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
def test_an_update_makes_one_version_and_says_what_it_did(algorithm: str):
    endless: dict[str, Any] = {} if algorithm == "reinforce" else {"algorithm_options": {"target_kl": None}}
    problem, spec = Problem(), rl_job(algorithm, **endless)
    slot = job_slot(problem, spec)
    (metrics,) = steps(slot, problem, 1)
    assert (slot.policy_version, slot.partitions, list(slot.consumed)) == (1, 1, ["p0"])
    assert slot.updates == spec.training.epochs * 2
    assert metrics["train/samples"] == 16
    assert metrics["train/epochs"] == spec.training.epochs
    assert metrics["train/log_prob_gap"] <= metrics["train/log_prob_gap_max"] < 1e-5
    assert 0 <= metrics["train/clip_fraction"] <= 1
    assert metrics["train/ratio_max"] >= 1
    assert metrics["train/approx_kl"] > 0
    assert metrics["train/grad_norm_actor"] > 0
    assert metrics["train/lr"] == pytest.approx(1e-3)
    assert (metrics["rollout/staleness_mean"], metrics["rollout/staleness/0"]) == (0, 16)
    has_critic = "value" in ALGORITHMS[algorithm]
    assert ("train/value_loss" in metrics) == ("train/grad_norm_critic" in metrics) == has_critic
    assert len(slot.observed) == 16


@pytest.mark.parametrize("case", list(CASES))
def test_with_unchanged_weights_every_log_probability_is_the_stored_one(case: str):
    problem = Problem()
    spec = rl_job("ppo", case=case, optimizer={"lr": 1e-12})
    slot = job_slot(problem, spec, case=case)
    (metrics,) = steps(slot, problem, 1)
    assert metrics["train/log_prob_gap_max"] < 1e-5
    assert metrics["train/ratio_max"] == pytest.approx(1, abs=1e-4)
    assert metrics["train/clip_fraction"] == 0


def moved_as_credited(features, batch, slot: RlSlot, credit_N: np.ndarray) -> float:
    """Correlation between what chunks were credited with and how much likelier an update made them."""
    assert slot.job is not None
    before = log_prob(slot, features, batch)
    update(slot, features, batch, slot.job, partition_id="p")
    return float(np.corrcoef((log_prob(slot, features, batch) - before).numpy(), credit_N)[0, 1])


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
def test_what_was_credited_becomes_likelier_unless_the_credit_is_shuffled(algorithm: str):
    problem = Problem()
    options: dict[str, Any] = {} if algorithm == "reinforce" else {"algorithm_options": {"target_kl": None}}
    slot = job_slot(problem, rl_job(algorithm, **options))
    features, batch = experience(slot, problem, 32)
    shuffled = replace(batch, advantage_N=np.roll(batch.advantage_N, 16))
    twin = copy.deepcopy(slot)
    assert moved_as_credited(features, batch, slot, batch.advantage_N) > 0.5
    assert moved_as_credited(features, shuffled, twin, batch.advantage_N) < 0.3


def test_value_warm_up_leaves_the_actor_alone_bit_for_bit():
    problem = Problem()
    slot = job_slot(problem, rl_job("ppo", training={"value_warmup": 2}))
    before = everything(slot)
    for metrics in steps(slot, problem, 2):
        assert metrics["train/value_loss"] > 0
        assert "train/policy_loss" not in metrics
    after = everything(slot)
    assert same(after["actor"], before["actor"])
    assert not same(after["critic"], before["critic"])
    steps(slot, problem, 1, first=2)
    assert not same(everything(slot)["actor"], before["actor"])


def test_epochs_end_once_the_policy_has_moved_far_enough():
    problem = Problem()
    training = {"epochs": 6}
    near = job_slot(problem, rl_job("ppo", training=training, algorithm_options={"target_kl": None}))
    far = job_slot(Problem(), rl_job("ppo", training=training, algorithm_options={"target_kl": 1e-9}))
    assert steps(near, problem, 1)[0]["train/epochs"] == 6
    assert steps(far, Problem(), 1)[0]["train/epochs"] == 1


def test_the_kl_is_that_of_the_policy_after_its_last_epoch():
    problem = Problem()
    slot = job_slot(problem, rl_job("grpo", algorithm_options={"target_kl": None}))
    features, batch = experience(slot, problem)
    trace = {name: torch.from_numpy(array) for name, array in batch.trace.items()}
    metrics = update(slot, features, batch, slot.job, partition_id="p")
    with torch.no_grad():
        now = slot.models.score(features, batch.state_NS, trace).log_prob_BCA
    logs = (now - trace["log_prob"])[torch.from_numpy(batch.mask_NC)].double()
    assert metrics["train/approx_kl"] == pytest.approx(float((torch.expm1(logs) - logs).mean()), rel=1e-5)


@pytest.mark.parametrize("spoiled", ["advantage_N", "returns_N"])
@pytest.mark.parametrize("first", [True, False])
def test_a_batch_with_nan_in_it_never_happened(spoiled: str, first: bool):
    problem = Problem()
    slot = job_slot(problem, rl_job("ppo"))
    if not first:
        steps(slot, problem, 1)
    features, batch = experience(slot, problem, seed=1)
    column = getattr(batch, spoiled).copy()
    column[-1] = np.nan
    before = everything(slot)
    with pytest.raises(NonFiniteLoss):
        update(slot, features, replace(batch, **{spoiled: column}), slot.job, partition_id="bad")
    assert same(everything(slot), before), "the critic's fit is undone too"
    assert slot.needs_fit == first
    update(slot, features, batch, slot.job, partition_id="good")
    assert slot.consumed[-1] == "good"


def test_the_first_batch_fits_the_critic_which_says_zero_until_then():
    problem = Problem()
    slot = job_slot(problem, rl_job("ppo"))
    features, batch = experience(slot, problem)
    assert slot.needs_fit
    assert batch.value_N is not None
    assert not batch.value_N.any()
    update(slot, features, batch, slot.job, partition_id="p0")
    assert not slot.needs_fit
    assert bool(slot.models.value(features, batch.state_NS).any())


def test_a_batch_without_chunks_makes_a_version_and_trains_nothing():
    problem = Problem()
    slot = job_slot(problem, rl_job("grpo"))
    before = everything(slot)
    metrics = update(slot, [], empty_batch(3, {"filtered_fraction": 1.0}), slot.job, partition_id="p0")
    assert metrics == {"train/samples": 0.0, "train/epochs": 0.0, "train/filtered_fraction": 1.0}
    assert same(everything(slot)["actor"], before["actor"])
    assert (slot.policy_version, list(slot.consumed)) == (1, ["p0"])


def test_data_of_an_older_version_are_compared_with_the_weights_at_the_start_by_decoupled_ppo():
    problem = Problem()
    slot = job_slot(problem, rl_job("decoupled_ppo", optimizer={"lr": 1e-12}))
    features, batch = experience(slot, problem)
    with torch.no_grad():
        slot.models.actor.log_std_A += 0.3  # a version has come between
    slot.step = 1
    metrics = update(slot, features, batch, slot.job, partition_id="p")
    assert metrics["train/behaviour_kl"] > 1e-3
    assert metrics["train/approx_kl"] < 1e-9, "nothing moved since the start of the update"
    assert "train/log_prob_gap" not in metrics, "another version's log-probabilities differ by right"
    assert metrics["rollout/staleness_max"] == 1


def test_the_kl_to_the_start_pulls_back():
    problem = Problem()
    free, held = (
        job_slot(Problem(), rl_job("grpo", algorithm_options={"reference_kl": weight, "target_kl": None}))
        for weight in (1e-9, 30.0)
    )
    found = []
    for slot in (free, held):
        problem = Problem(7)
        found.append(steps(slot, problem, 6)[-1]["train/reference_kl"])
    assert 0 < found[1] < 0.5 * found[0]


def test_options_that_do_not_apply_are_refused_by_name():
    problem = Problem()
    spec = rl_job("ppo", case="sde", algorithm_options={"entropy_coefficient": 0.01})
    slot = job_slot(problem, spec, case="sde")
    with pytest.raises(OptionRefused, match=r"entropy_coefficient 0\.01 does not apply to exploration 'flow_sde'"):
        check_options(slot, spec)
    for options in ({"filter_low": 1.0}, {"filter_low": 2.0, "filter_high": 1.0}):
        with pytest.raises(ValueError, match="filter_"):
            rl_job("grpo", algorithm_options=options)


def test_a_batch_that_this_slot_cannot_have_played_is_refused():
    problem = Problem()
    slot = job_slot(problem, rl_job("ppo"))
    features, batch = experience(slot, problem)
    before = everything(slot)
    with pytest.raises(FutureVersion, match="behaviour version 1 is newer than the policy version 0"):
        update(slot, features, replace(batch, version_N=batch.version_N + 1), slot.job, partition_id="p")
    with pytest.raises(RolloutMismatch, match="features: 15 rows, allowed: 16"):
        update(slot, features[1:], batch, slot.job, partition_id="p")
    cut = dict(batch.trace) | {"log_prob": batch.trace["log_prob"][:, :2]}
    with pytest.raises(RolloutMismatch, match=r"trace\.log_prob"):
        update(slot, features, replace(batch, trace=cut), slot.job, partition_id="p")
    with pytest.raises(RolloutMismatch, match="returns: missing"):
        update(slot, features, replace(batch, returns_N=None), slot.job, partition_id="p")
    assert same(everything(slot), before)


def test_chunks_that_share_one_feature_train_as_if_each_had_its_own():
    found = []
    for shared in (True, False):
        problem = Problem()
        slot = job_slot(problem, rl_job("ppo"))
        features, batch = experience(slot, problem)
        rows = [features[0]] * 16 if shared else [{k: v.clone() for k, v in features[0].items()} for _ in range(16)]
        metrics = update(slot, rows, batch, slot.job, partition_id="p")
        found.append((metrics, everything(slot)))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


@pytest.mark.parametrize("case", ["mlp", "sde", "noise"])
@pytest.mark.parametrize("algorithm", ["decoupled_ppo", "grpo"])
def test_resuming_equals_never_having_stopped(algorithm: str, case: str, tmp_path: Path):
    spec = rl_job(algorithm, case=case, algorithm_options={"reference_kl": 0.1})
    problem = Problem()
    steady = job_slot(problem, spec, case=case)
    steps(steady, problem, 2)
    save_rl_slot(steady, tmp_path / "c")
    torch.manual_seed(99)
    resumed = load_rl_slot(tmp_path / "c", tap_width=tap_width, spec=spec)
    assert same(everything(resumed), everything(steady))
    assert resumed.observed.instructions == steady.observed.instructions
    for at in range(2, 5):
        work = experience(steady, problem, seed=at)
        both = [update(slot, *work, spec, partition_id=f"p{at}") for slot in (steady, resumed)]
        assert both[0] == both[1]
    assert same(everything(resumed), everything(steady))
    with pytest.raises(CheckpointError, match="written for another specification"):
        load_rl_slot(tmp_path / "c", tap_width=tap_width, spec=rl_job(algorithm, case=case))


def test_a_slot_that_was_never_trained_comes_back_with_an_unfitted_critic(tmp_path: Path):
    spec = rl_job("ppo")
    save_rl_slot(job_slot(Problem(), spec), tmp_path / "c")
    assert load_rl_slot(tmp_path / "c", tap_width=tap_width, spec=spec).needs_fit
