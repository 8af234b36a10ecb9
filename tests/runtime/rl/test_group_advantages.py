"""Advantages by comparing episodes (GRPO, REINFORCE) against loops; each property catches a planted fault."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.training.rl import grpo, reinforce
from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch
from gpu_runtime.training.rl.rollout import Rollout
from tests.support import rl_reference as reference
from tests.support.rl_examples import (
    QUICK,
    Shape,
    caught,
    close,
    episode_shapes,
    returns_of,
    valid_of,
)

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
            estimate(replace(sparse([1, 0]), auto_reset=True))


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
