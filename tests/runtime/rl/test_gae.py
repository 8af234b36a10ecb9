"""Which steps count, and GAE against its definition as a sum; each property catches a planted fault."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.training.rl import gae
from gpu_runtime.training.rl.errors import NonFiniteReward, RolloutMismatch
from gpu_runtime.training.rl.rollout import Rollout
from tests.support import rl_reference as reference
from tests.support.rl_examples import (
    QUICK,
    Shape,
    caught,
    close,
    rollout_shapes,
    valid_of,
)

# --- which steps count ----------------------------------------------------------------------------------------------


def check_valid_steps(shape: Shape) -> None:
    rollout = shape.rollout()
    assert rollout.valid_steps().tolist() == valid_of(rollout)


@QUICK
@given(rollout_shapes)
def test_steps_count_up_to_and_including_the_first_end(shape):
    check_valid_steps(shape)


def test_a_step_counted_after_the_end_is_caught(monkeypatch):
    monkeypatch.setattr("gpu_runtime.training.rl.rollout._until_first_done", lambda done, executed: executed)
    caught(check_valid_steps, rollout_shapes)


def test_chunks_of_environments_that_stop_at_the_end_put_the_end_at_the_last_executed_step():
    rollout = Rollout.from_chunks(
        torch.tensor([[[1.0, 2.0, 9.0]], [[3.0, 9.0, 9.0]]]),
        executed_nB=torch.tensor([[2], [0]]),
        terminated_nB=torch.tensor([[True], [False]]),
        truncated_nB=torch.tensor([[False], [False]]),
        auto_reset=False,
    )
    assert rollout.terminated_nBC.tolist() == [[[False, True, False]], [[False, False, False]]]
    assert rollout.kept_rewards().tolist() == [[[1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]]
    assert rollout.valid_chunks().tolist() == [[True], [False]]


def test_a_reward_that_is_not_a_number_is_refused_where_it_counts_only():
    flags = {"terminated_nBC": torch.tensor([[[True, False]]]), "truncated_nBC": torch.zeros(1, 1, 2).bool()}
    Rollout(rewards_nBC=torch.tensor([[[1.0, math.nan]]]), **flags)
    with pytest.raises(NonFiniteReward):
        Rollout(rewards_nBC=torch.tensor([[[math.nan, 1.0]]]), **flags)


LEVELS_AND_BOOTSTRAPS = [(level, kind) for level in ("chunk", "action") for kind in ("standard", "always")]
gae_problems = st.tuples(rollout_shapes, st.sampled_from(LEVELS_AND_BOOTSTRAPS))


# --- GAE ------------------------------------------------------------------------------------------------------------


def check_gae(problem: tuple[Shape, tuple[str, str]]) -> None:
    shape, (level, bootstrap) = problem
    rollout, by_chunk = shape.rollout(), level == "chunk"
    values = shape.numbers(*rollout.rewards_nBC.shape[: 2 if by_chunk else 3])
    final, ahead = shape.numbers(*rollout.rewards_nBC.shape[:2]), shape.numbers(shape.envs)
    config = gae.GaeConfig(gamma=0.9, gae_lambda=0.7, bootstrap=bootstrap, reward_level=level)
    ended = torch.tensor(valid_of(rollout)) & (rollout.terminated_nBC | rollout.truncated_nBC)
    read = torch.where(ended.any(dim=2), final, torch.nan)  # nobody computed the others
    found = gae.estimate(config, rollout, values, ahead, read)
    known = {
        "rewards": rollout.rewards_nBC.tolist(),
        "values": values.tolist(),
        "final_values": final.tolist(),
        "terminated": rollout.terminated_nBC.tolist(),
        "truncated": rollout.truncated_nBC.tolist(),
    }
    expected, returns = torch.zeros_like(values), torch.zeros_like(values)
    for b in range(shape.envs):
        steps, places = reference.transitions_of(
            b, **known, valid=valid_of(rollout), always=bootstrap == "always", by_chunk=by_chunk
        )
        for place, advantage in zip(places, reference.gae(steps, float(ahead[b]), 0.9, 0.7), strict=True):
            expected[place], returns[place] = advantage, advantage + values[place]
    close(found.advantages, expected.tolist())
    close(found.returns, returns.tolist())


@QUICK
@given(gae_problems)
def test_advantages_and_returns_are_discounted_sums_of_td_errors_up_to_the_first_end(problem):
    check_gae(problem)


def plant_rewards_after_the_end(monkeypatch):
    monkeypatch.setattr(Rollout, "kept_rewards", lambda rollout: rollout.rewards_nBC.nan_to_num())


def plant_bootstrap_after_termination(monkeypatch):
    honest = gae._bootstrapped

    def always(config, *rest):
        return honest(gae.GaeConfig(gamma=config.gamma, bootstrap="always"), *rest)

    monkeypatch.setattr(gae, "_bootstrapped", always)


def plant_no_bootstrap(monkeypatch):
    honest = gae._bootstrapped
    monkeypatch.setattr(gae, "_bootstrapped", lambda c, rollout, final, values: honest(c, rollout, final * 0, values))


def plant_credit_across_episodes(monkeypatch):
    honest = gae._recursion
    monkeypatch.setattr(gae, "_recursion", lambda c, rewards, done, *rest: honest(c, rewards, done & False, *rest))


def plant_steps_nobody_took(monkeypatch):
    honest = gae._recursion
    monkeypatch.setattr(gae, "_recursion", lambda c, r, done, valid, *rest: honest(c, r, done, valid | True, *rest))


@pytest.mark.parametrize(
    "plant",
    [
        plant_rewards_after_the_end,
        plant_bootstrap_after_termination,
        plant_no_bootstrap,
        plant_credit_across_episodes,
        plant_steps_nobody_took,
    ],
)
def test_a_fault_planted_in_gae_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    caught(check_gae, gae_problems)


def one_step(*, terminated: bool, truncated: bool) -> Rollout:
    return Rollout(
        rewards_nBC=torch.tensor([[[1.0]]]),
        terminated_nBC=torch.tensor([[[terminated]]]),
        truncated_nBC=torch.tensor([[[truncated]]]),
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "bootstrap", "target"),
    [
        (False, True, "standard", 1 + 0.5 * 10),
        (True, False, "standard", 1),
        (True, True, "standard", 1),
        (True, False, "always", 1 + 0.5 * 10),
        (False, False, "standard", 1 + 0.5 * 100),
    ],
)
def test_the_target_is_the_reward_and_what_the_final_observation_was_worth(terminated, truncated, bootstrap, target):
    found = gae.estimate(
        gae.GaeConfig(gamma=0.5, bootstrap=bootstrap),
        one_step(terminated=terminated, truncated=truncated),
        values=torch.zeros(1, 1),
        next_values_B=torch.tensor([100.0]),
        final_values_nB=torch.tensor([[10.0]]),
    )
    assert found.returns.tolist() == [[target]]


def test_a_truncated_episode_without_the_value_of_its_final_observation_is_refused():
    with pytest.raises(RolloutMismatch, match="final_values: missing"):
        gae.estimate(gae.GaeConfig(), one_step(terminated=False, truncated=True), torch.zeros(1, 1), torch.zeros(1))


def test_the_discount_acts_once_per_decision_at_chunk_level_and_once_per_step_at_action_level():
    rewards = torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]]])
    rollout = Rollout(rewards_nBC=rewards, terminated_nBC=rewards.bool(), truncated_nBC=rewards.bool() & False)
    chunk = gae.estimate(gae.GaeConfig(gamma=0.5, gae_lambda=1), rollout, torch.zeros(2, 1), torch.zeros(1))
    action = gae.GaeConfig(gamma=0.5, gae_lambda=1, reward_level="action")
    steps = gae.estimate(action, rollout, torch.zeros(2, 1, 2), torch.zeros(1))
    assert chunk.returns.flatten().tolist() == [0.5, 1.0]
    assert steps.returns.flatten().tolist() == [0.125, 0.25, 0.5, 1.0]
