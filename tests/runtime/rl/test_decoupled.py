"""Decoupled PPO against a loop over single elements; each property catches a planted fault."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.training.rl import decoupled, masks, ppo
from gpu_runtime.training.rl.errors import FutureVersion, OptionRefused
from tests.support import rl_reference as reference
from tests.support.rl_examples import (
    LEVELS,
    QUICK,
    Minibatch,
    Shape,
    agree,
    caught,
    minibatch_shapes,
    minibatches,
)

stale_batches = st.tuples(minibatch_shapes, st.sampled_from(LEVELS), st.sampled_from(["mask", "clamp"]))


def check_decoupled(problem: tuple[Shape, str, str]) -> None:
    shape, level, action = problem
    batch = Minibatch(shape)
    config = decoupled.DecoupledConfig(behaviour_weight_cap=1.2, cap_action=action, log_prob_level=level)
    found = decoupled.policy_loss(
        config, batch.log_prob, batch.behaviour, batch.advantage, batch.mask, proximal_log_prob_NCA=batch.old
    )
    losses, capped = [], 0
    for advantage, new, proximal, behaviour in batch.rows(level, batch.log_prob, batch.old, batch.behaviour):
        weight = math.exp(proximal - behaviour)
        capped += weight > 1.2
        if weight > 1.2:
            weight = 0.0 if action == "mask" else 1.2
        losses.append(weight * reference.clipped_objective(math.exp(new - proximal), advantage, 0.2, 0.2, None))
    agree(found.loss, reference.mean(losses))
    assert found.capped == capped
    assert 0 <= found.metrics()["behaviour_cap_fraction"] <= 1
    found.loss.backward()
    assert bool(torch.isfinite(batch.log_prob.grad).all())


@QUICK
@given(stale_batches)
def test_stale_elements_are_weighted_by_their_capped_importance_over_the_original_count(problem):
    check_decoupled(problem)


def test_a_mean_over_the_surviving_elements_is_caught(monkeypatch):
    monkeypatch.setattr(decoupled, "masked_mean", lambda values, mask: masks.masked_mean(values, mask & (values != 0)))
    caught(check_decoupled, stale_batches)


def test_a_cap_that_is_never_reached_is_caught(monkeypatch):
    monkeypatch.setattr(decoupled, "_capped", lambda config, logs: (logs.exp(), torch.zeros_like(logs).bool()))
    caught(check_decoupled, stale_batches)


def check_fresh_data(problem: tuple[Shape, str, float | None]) -> None:
    shape, level, dual = problem
    batch = Minibatch(shape)
    options = {"dual_clip": dual, "log_prob_level": level}
    plain = ppo.policy_loss(ppo.PpoConfig(**options), batch.log_prob, batch.old, batch.advantage, batch.mask)
    config = decoupled.DecoupledConfig(proximal="interpolated", **options)
    stale = decoupled.policy_loss(
        config, batch.log_prob, batch.old, batch.advantage, batch.mask,
        behaviour_version_N=torch.full((shape.rows,), 7), policy_version=7,
    )  # fmt: skip
    agree(stale.loss, plain.loss.item())
    assert stale.statistics == plain.statistics
    assert stale.capped == 0


@QUICK
@given(minibatches)
def test_data_of_the_current_version_give_ordinary_ppo(problem):
    check_fresh_data(problem)


def test_a_proximal_policy_that_is_the_current_one_is_caught(monkeypatch):
    monkeypatch.setattr(decoupled, "interpolated_log_prob", lambda new, *rest: new.detach())
    caught(check_fresh_data, minibatches)


def test_the_interpolated_policy_lies_one_update_behind_the_current_one():
    new, old = torch.full((4, 1, 1), 1.0, requires_grad=True), torch.zeros(4, 1, 1)
    found = decoupled.interpolated_log_prob(new, old, torch.tensor([10, 9, 8, 0]), 10)
    assert found.flatten().tolist() == pytest.approx([0, 0, 0.5, 0.9])
    assert not found.requires_grad
    with pytest.raises(FutureVersion, match="behaviour version 11 is newer than the policy version 10"):
        decoupled.interpolated_log_prob(new, old, torch.tensor([10, 9, 8, 11]), 10)


@pytest.mark.parametrize(("proximal", "given_parts"), [("recomputed", {}), ("interpolated", {"policy_version": 3})])
def test_a_proximal_policy_that_cannot_be_had_is_refused_by_its_option(proximal, given_parts):
    config = decoupled.DecoupledConfig(proximal=proximal)
    with pytest.raises(OptionRefused, match=f"proximal = '{proximal}' takes"):
        decoupled.policy_loss(config, torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), torch.zeros(1), **given_parts)
