"""Advantage estimates against definitions written as loops; each property catches a planted fault."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.training.rl import gae, grpo, reinforce
from gpu_runtime.training.rl.errors import NonFiniteReward, OptionRefused, RolloutMismatch
from gpu_runtime.training.rl.rollout import Rollout
from tests.support import rl_reference as reference
from tests.support.rl_examples import QUICK, Shape, caught, episode_shapes, rollout_shapes

LEVELS_AND_BOOTSTRAPS = [(level, kind) for level in ("chunk", "action") for kind in ("standard", "always")]
gae_problems = st.tuples(rollout_shapes, st.sampled_from(LEVELS_AND_BOOTSTRAPS))


def close(found: torch.Tensor, expected: object) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.double), rtol=1e-5, atol=1e-6)


def valid_of(rollout: Rollout) -> list:
    flags = (rollout.terminated_nBC, rollout.truncated_nBC, rollout.executed_nBC)
    return reference.valid_steps(*(flag.tolist() for flag in flags), rollout.auto_reset)


def returns_of(rollout: Rollout) -> tuple[list[float], list[bool]]:
    """Return of every environment's one episode, and whether it had a step at all."""
    valid, rewards = valid_of(rollout), rollout.rewards_nBC.tolist()
    chunks, envs, steps = rollout.rewards_nBC.shape
    places = [(n, c) for n in range(chunks) for c in range(steps)]
    returns = [math.fsum(rewards[n][b][c] for n, c in places if valid[n][b][c]) for b in range(envs)]
    return returns, [any(valid[n][b][c] for n, c in places) for b in range(envs)]


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


# --- GRPO -----------------------------------------------------------------------------------------------------------


def draw_groups(shape: Shape) -> tuple[Rollout, torch.Tensor]:
    """Reset ids in any order; a few returns are equal."""
    rollout = shape.rollout()
    ids = torch.from_numpy(shape.random.integers(0, 3, shape.envs))
    return Rollout(
        rewards_nBC=rollout.rewards_nBC.mul(2).round(),
        terminated_nBC=rollout.terminated_nBC,
        truncated_nBC=rollout.truncated_nBC,
        executed_nBC=rollout.executed_nBC,
        auto_reset=False,
    ), ids


def check_grpo(shape: Shape) -> None:
    rollout, ids = draw_groups(shape)
    found = grpo.estimate(grpo.GrpoConfig(group_size=9), rollout, ids)
    returns, present = returns_of(rollout)
    here = [b for b in range(shape.envs) if present[b]]
    labels = [int(ids[b]) for b in here]
    expected = reference.group_advantages([returns[b] for b in here], labels, 1e-6)
    by_env = [0.0] * shape.envs
    for b, advantage in zip(here, expected, strict=True):
        by_env[b] = advantage
    valid = torch.tensor(valid_of(rollout)).any(dim=2)
    close(found.advantages_nB, (torch.tensor(by_env, dtype=torch.double) * valid).tolist())
    assert found.groups == len(set(labels))
    learns_nothing = [all(a == 0 for a, own in zip(expected, labels, strict=True) if own == g) for g in set(labels)]
    assert found.zero_advantage_groups == sum(learns_nothing)


@QUICK
@given(episode_shapes)
def test_an_advantage_compares_an_episode_with_those_of_the_same_reset_id(shape):
    check_grpo(shape)


def test_groups_by_position_instead_of_reset_id_are_caught(monkeypatch):
    honest = grpo.estimate
    monkeypatch.setattr(grpo, "estimate", lambda config, rollout, ids: honest(config, rollout, ids.sort().values))
    caught(check_grpo, episode_shapes)


def test_a_biased_spread_is_caught(monkeypatch):
    def biased(config, returns):
        return (returns - returns.mean()) / (returns.std(correction=0) + config.epsilon)

    monkeypatch.setattr(grpo, "_relative", biased)
    caught(check_grpo, episode_shapes)


def sparse(successes: list[int]) -> Rollout:
    rewards = torch.tensor(successes, dtype=torch.float32)[None, :, None]
    return Rollout(
        rewards_nBC=rewards,
        terminated_nBC=torch.ones_like(rewards).bool(),
        truncated_nBC=torch.zeros_like(rewards).bool(),
        auto_reset=False,
    )


def test_groups_without_spread_or_with_one_member_teach_nothing_and_are_counted():
    found = grpo.estimate(grpo.GrpoConfig(group_size=2), sparse([1, 1, 0, 1, 0]), torch.tensor([7, 7, 8, 8, 9]))
    assert found.advantages_nB[0].tolist() == pytest.approx([0, 0, -(0.5**0.5), 0.5**0.5, 0], rel=1e-4)
    assert found.zero_advantage_fraction == 2 / 3
    assert bool(torch.isfinite(found.advantages_nB).all())


def test_groups_that_are_too_easy_or_too_hard_are_left_out_of_the_loss():
    config = grpo.GrpoConfig(group_size=2, filter_low=0.1, filter_high=0.9)
    found = grpo.estimate(config, sparse([1, 1, 0, 1, 0, 0]), torch.tensor([1, 1, 2, 2, 3, 3]))
    assert found.valid_nBC[0, :, 0].tolist() == [False, False, True, True, False, False]
    assert (found.filtered_groups, found.filtered_fraction) == (2, 2 / 3)


def test_a_group_with_less_spread_than_the_least_teaches_nothing():
    config = grpo.GrpoConfig(group_size=2, min_std=0.1)
    rollout = sparse([1, 1])
    rollout.rewards_nBC[0, 1, 0] += 0.01
    assert grpo.estimate(config, rollout, torch.tensor([0, 0])).zero_advantage_groups == 1


def test_a_reset_id_that_was_drawn_twice_is_refused():
    with pytest.raises(RolloutMismatch, match="reset id 7: 3 episodes, allowed: 2"):
        grpo.estimate(grpo.GrpoConfig(group_size=2), sparse([0, 1, 1]), torch.tensor([7, 7, 7]))


def test_environments_that_start_over_are_no_episodes():
    for estimate in (
        lambda rollout: grpo.estimate(grpo.GrpoConfig(), rollout, torch.zeros(1)),
        lambda rollout: reinforce.estimate(reinforce.ReinforceConfig(), rollout),
    ):
        with pytest.raises(RolloutMismatch, match="auto-reset"):
            estimate(one_step(terminated=True, truncated=False))


# --- REINFORCE ------------------------------------------------------------------------------------------------------

baselines = st.tuples(episode_shapes, st.sampled_from(list(reinforce.Baseline)))


def check_reinforce(problem: tuple[Shape, reinforce.Baseline]) -> None:
    shape, baseline = problem
    rollout, ids = draw_groups(shape)
    config = reinforce.ReinforceConfig(gamma=0.9, baseline=baseline, normalize_advantages=False)
    grouped = baseline in reinforce.GROUPED
    found = reinforce.estimate(config, rollout, ids if grouped else None)
    valid, rewards = valid_of(rollout), rollout.rewards_nBC.tolist()
    chunks, envs, steps = rollout.rewards_nBC.shape

    def to_go(n: int, b: int) -> float:
        later = [(k, c) for k in range(n, chunks) for c in range(steps) if valid[k][b][c]]
        return math.fsum(0.9 ** (k - n) * rewards[k][b][c] for k, c in later)

    for n in range(chunks):
        acting = [b for b in range(envs) if any(valid[n][b])]
        for b in range(envs):
            compared = [o for o in acting if not grouped or ids[o] == ids[b]]
            if baseline is reinforce.Baseline.LEAVE_ONE_OUT:
                compared = [o for o in compared if o != b]
            expected = 0.0
            if b in acting and baseline is reinforce.Baseline.NONE:
                expected = to_go(n, b)
            elif b in acting and compared:
                expected = to_go(n, b) - reference.mean([to_go(n, o) for o in compared])
            close(found.advantages_nB[n, b], expected)


@QUICK
@given(baselines)
def test_an_advantage_is_the_return_to_go_minus_its_baseline_at_the_same_decision(problem):
    check_reinforce(problem)


def test_a_baseline_that_counts_episodes_which_are_over_is_caught(monkeypatch):
    honest = reinforce._minus_baseline
    monkeypatch.setattr(
        reinforce, "_minus_baseline", lambda kind, returns, valid, groups: honest(kind, returns, valid | True, groups)
    )
    caught(check_reinforce, baselines)


def test_reset_ids_belong_to_grouped_baselines_only():
    with pytest.raises(OptionRefused, match="'group_mean' does not apply without reset ids"):
        reinforce.estimate(reinforce.ReinforceConfig(baseline="group_mean"), sparse([1, 0]))
    with pytest.raises(OptionRefused, match="'batch_mean' does not apply to groups"):
        reinforce.estimate(reinforce.ReinforceConfig(), sparse([1, 0]), torch.tensor([0, 0]))


def test_normalised_advantages_have_mean_zero_and_spread_one_and_a_single_one_is_finite():
    found = reinforce.estimate(reinforce.ReinforceConfig(), sparse([1, 0, 0, 1]))
    assert found.advantages_nB.mean() == pytest.approx(0, abs=1e-6)
    assert found.advantages_nB.std() == pytest.approx(1, rel=1e-4)
    assert reinforce.estimate(reinforce.ReinforceConfig(), sparse([1])).advantages_nB.tolist() == [[0.0]]
