"""The REINFORCE loss and the KL to the reference against loops; each property catches a planted fault."""

import pytest
import torch
from hypothesis import given

from gpu_runtime.training.rl import reinforce
from gpu_runtime.training.rl.reference_kl import ReferenceKlConfig, reference_kl
from tests.support import rl_reference as reference
from tests.support.rl_examples import (
    QUICK,
    Minibatch,
    Shape,
    agree,
    caught,
    leveled,
)


def check_reinforce_loss(problem: tuple[Shape, str]) -> None:
    shape, level = problem
    batch = Minibatch(shape)
    config = reinforce.ReinforceConfig(log_prob_level=level)
    found = reinforce.policy_loss(config, batch.log_prob, batch.advantage, batch.mask)
    agree(found, reference.mean([-a * new for a, new in batch.rows(level, batch.log_prob)]))


@QUICK
@given(leveled)
def test_the_reinforce_loss_is_the_mean_of_minus_advantage_times_log_probability(problem):
    check_reinforce_loss(problem)


def test_a_loss_that_is_a_sum_over_the_action_dims_is_caught(monkeypatch):
    honest = reinforce.masked_mean
    monkeypatch.setattr(reinforce, "masked_mean", lambda values, mask: honest(values, mask) * values.shape[-1])
    caught(check_reinforce_loss, leveled)


def check_reference_kl(problem: tuple[Shape, str]) -> None:
    shape, level = problem
    batch = Minibatch(shape)
    config = ReferenceKlConfig(coefficient=0.5, log_prob_level=level)
    found = reference_kl(config, batch.log_prob, batch.old.requires_grad_(), batch.mask)
    expected = reference.mean(
        [reference.k3(ref - new) for _, new, ref in batch.rows(level, batch.log_prob, batch.old)]
    )
    agree(found.mean, expected)
    agree(found.penalty, 0.5 * expected)
    assert float(found.mean) >= 0
    found.penalty.backward()
    assert batch.old.grad is None
    assert bool(torch.isfinite(batch.log_prob.grad).all())


@QUICK
@given(leveled)
def test_the_kl_to_the_reference_is_k3_never_negative_and_moves_the_policy_only(problem):
    check_reference_kl(problem)


def test_a_kl_the_wrong_way_round_is_caught(monkeypatch):
    monkeypatch.setattr("gpu_runtime.training.rl.reference_kl.bounded", lambda difference: -difference)
    caught(check_reference_kl, leveled)


def test_the_mean_over_the_policy_s_own_actions_is_the_kl_of_two_gaussians():
    generator = torch.Generator().manual_seed(0)
    policy, snapshot = torch.distributions.Normal(0.0, 1.0), torch.distributions.Normal(0.3, 1.2)
    actions = torch.randn(200_000, 1, 1, generator=generator)
    found = reference_kl(ReferenceKlConfig(coefficient=1.0), policy.log_prob(actions), snapshot.log_prob(actions))
    exact = float(torch.distributions.kl_divergence(policy, snapshot))
    assert float(found.mean) == pytest.approx(exact, rel=0.03)
