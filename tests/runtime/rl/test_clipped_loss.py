"""The clipped policy loss against a loop over single elements; each property catches a planted fault."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given

from gpu_runtime.training.rl import levels, masks, ppo, surrogate
from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch
from gpu_runtime.training.rl.reference_kl import ReferenceKlConfig, reference_kl
from tests.support import rl_reference as reference
from tests.support.rl_examples import (
    QUICK,
    Minibatch,
    Shape,
    agree,
    caught,
    minibatch_shapes,
    minibatches,
)


def check_policy_loss(problem: tuple[Shape, str, float | None]) -> None:
    shape, level, dual = problem
    batch = Minibatch(shape)
    config = ppo.PpoConfig(clip_low=0.1, clip_high=0.3, dual_clip=dual, log_prob_level=level)
    found = ppo.policy_loss(config, batch.log_prob, batch.old, batch.advantage, batch.mask)
    rows = [(a, math.exp(new - old)) for a, new, old in batch.rows(level, batch.log_prob, batch.old)]
    agree(found.loss, reference.mean([reference.clipped_objective(r, a, 0.1, 0.3, dual) for a, r in rows]))
    metrics = found.statistics.metrics()
    agree(metrics["clip_fraction"], reference.mean([reference.is_clipped(r, a, 0.1, 0.3) for a, r in rows]))
    agree(metrics["approx_kl"], reference.mean([reference.k3(math.log(r)) for _, r in rows]))
    agree(metrics["ratio_max"], max(r for _, r in rows))
    cut = [dual is not None and a < 0 and r > dual for a, r in rows]
    agree(metrics["dual_clip_fraction"], reference.mean(cut))
    assert 0 <= metrics["clip_fraction"] <= 1
    assert metrics["approx_kl"] >= 0
    found.loss.backward()
    assert bool(torch.isfinite(batch.log_prob.grad).all())
    assert not bool(batch.log_prob.grad[~batch.valid].any())


@QUICK
@given(minibatches)
def test_the_clipped_loss_and_its_fractions_are_means_over_single_elements(problem):
    check_policy_loss(problem)


def plant_a_count_of_the_mask_before_it_is_broadcast(monkeypatch):
    def narrow(values, mask, weight=None):
        narrow_count = mask.flatten(1)[:, :1].sum() if mask.dim() > 1 else mask.sum()
        return masks.keep(values, mask).sum() / narrow_count

    monkeypatch.setattr(surrogate, "masked_mean", narrow)


def plant_fractions_that_are_sums_over_action_dims(monkeypatch):
    honest = PolicyStatistics.of

    def summed(log_ratio, mask, **flags):
        found = honest(log_ratio, mask, **flags)
        return replace(found, elements=max(found.elements // log_ratio.shape[-1], 1))

    monkeypatch.setattr(PolicyStatistics, "of", summed)


def plant_the_kinder_of_the_two_objectives(monkeypatch):
    honest = surrogate.clipped_surrogate

    def kinder(config, log_ratio, advantage):
        found = honest(config, log_ratio, advantage)
        held = -advantage * log_ratio.exp().clamp(1 - config.clip_low, 1 + config.clip_high)
        return replace(found, loss=torch.minimum(found.loss, held))

    monkeypatch.setattr(surrogate, "clipped_surrogate", kinder)


def plant_a_dual_clip_for_good_actions_too(monkeypatch):
    honest = surrogate.clipped_surrogate

    def both(config, log_ratio, advantage):
        found = honest(config, log_ratio, advantage)
        low = -(config.dual_clip or 9) * advantage.abs() * 0.5
        return replace(found, loss=torch.maximum(found.loss, low))

    monkeypatch.setattr(surrogate, "clipped_surrogate", both)


def plant_a_dual_clip_that_is_ignored(monkeypatch):
    honest = surrogate.clipped_surrogate
    monkeypatch.setattr(
        surrogate, "clipped_surrogate", lambda config, *rest: honest(replace(config, dual_clip=None), *rest)
    )


def plant_a_mask_by_multiplication(monkeypatch):
    monkeypatch.setattr(levels, "keep", lambda values, mask: values * masks.full_mask(mask, values))


@pytest.mark.parametrize(
    "plant",
    [
        plant_a_count_of_the_mask_before_it_is_broadcast,
        plant_fractions_that_are_sums_over_action_dims,
        plant_the_kinder_of_the_two_objectives,
        plant_a_dual_clip_for_good_actions_too,
        plant_a_dual_clip_that_is_ignored,
        plant_a_mask_by_multiplication,
    ],
)
def test_a_fault_planted_in_the_clipped_loss_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    caught(check_policy_loss, minibatches)


def check_a_full_mask_changes_nothing(problem: tuple[Shape, str, float | None]) -> None:
    shape, level, dual = problem
    value, returns = shape.numbers(3, 2), shape.numbers(3, 2)
    losses = [ppo.value_loss(ppo.PpoConfig(), value, value, returns, m).loss for m in (None, torch.ones(3, 1).bool())]
    agree(losses[1], losses[0].item())
    new, old, advantage = shape.numbers(3, 2, 4), shape.numbers(3, 2, 4), shape.numbers(3)
    config = ppo.PpoConfig(dual_clip=dual, log_prob_level=level)
    bare, full = (ppo.policy_loss(config, new, old, advantage, m) for m in (None, torch.ones(3, 2).bool()))
    agree(full.loss, bare.loss.item())
    assert full.statistics == bare.statistics
    kl = ReferenceKlConfig(coefficient=1.0, log_prob_level=level)
    agree(reference_kl(kl, new, old, torch.ones(3, 2).bool()).mean, float(reference_kl(kl, new, old).mean))


@QUICK
@given(minibatches)
def test_a_mask_of_ones_changes_nothing(problem):
    check_a_full_mask_changes_nothing(problem)


def test_a_mask_that_is_not_broadcast_before_it_is_counted_is_caught(monkeypatch):
    def only_unsqueezed(name, part, like):
        return part.reshape(*part.shape, *[1] * (like.dim() - part.dim()))

    monkeypatch.setattr(masks, "_expand", only_unsqueezed)
    caught(check_a_full_mask_changes_nothing, minibatches)
    caught(check_masked_mean, minibatch_shapes)


def check_masked_mean(shape: Shape) -> None:
    values = shape.numbers(shape.rows, shape.steps, shape.dims)
    mask = shape.flags(shape.rows, shape.steps, share=0.7)
    kept = [x for i, row in enumerate(values.tolist()) for c, step in enumerate(row) if mask[i, c] for x in step]
    agree(masks.masked_mean(values, mask), reference.mean(kept) if kept else 0.0)


@QUICK
@given(minibatch_shapes)
def test_a_masked_mean_is_the_mean_of_the_single_elements_that_are_left(shape):
    check_masked_mean(shape)


def test_micro_batches_add_up_to_the_whole_minibatch():
    batch = Minibatch(Shape(seed=5, rows=6, steps=3, dims=2))
    config = ppo.PpoConfig()
    whole = ppo.policy_loss(config, batch.log_prob, batch.old, batch.advantage, batch.mask)
    whole.loss.backward()
    gradient, batch.log_prob.grad = batch.log_prob.grad.clone(), None
    merged = PolicyStatistics()
    for part in (slice(0, 1), slice(1, 6)):
        parts = (batch.log_prob[part], batch.old[part], batch.advantage[part], batch.mask[part])
        found = ppo.policy_loss(config, *parts)
        (found.loss * found.statistics.elements / whole.statistics.elements).backward()
        merged += found.statistics
    torch.testing.assert_close(batch.log_prob.grad, gradient)
    assert merged.metrics() == pytest.approx(whole.statistics.metrics())


def test_half_precision_log_probabilities_are_compared_in_fp32():
    new, old = torch.full((1, 1, 8), -3.0).bfloat16(), torch.full((1, 1, 8), -3.03125).bfloat16()
    found = ppo.policy_loss(ppo.PpoConfig(log_prob_level="chunk"), new, old, torch.ones(1))
    assert found.loss.dtype == torch.float32
    difference = float((new.float() - old.float()).sum())
    assert found.statistics.ratio_max == pytest.approx(math.exp(difference), rel=1e-6)


def test_ratios_beyond_all_numbers_give_finite_losses_and_gradients():
    new = torch.tensor([[[400.0]], [[-400.0]]], requires_grad=True)
    for advantage in (torch.tensor([-1.0, 1.0]), torch.zeros(2)):
        found = ppo.policy_loss(ppo.PpoConfig(dual_clip=3.0), new, torch.zeros(2, 1, 1), advantage)
        found.loss.backward()
        assert bool(torch.isfinite(found.loss))
        assert bool(torch.isfinite(new.grad).all())


def test_a_minibatch_with_nothing_valid_has_loss_zero():
    found = ppo.policy_loss(
        ppo.PpoConfig(), torch.ones(2, 1, 1), torch.zeros(2, 1, 1), torch.ones(2), torch.zeros(2, 1).bool()
    )
    assert float(found.loss) == 0
    assert found.statistics.metrics()["clip_fraction"] == 0


def test_an_update_stops_when_it_has_moved_further_than_the_target_kl():
    config = ppo.PpoConfig(target_kl=0.05)
    assert not ppo.exceeds_target_kl(config, PolicyStatistics(elements=10, kl=0.5))
    assert ppo.exceeds_target_kl(config, PolicyStatistics(elements=10, kl=0.6))
    assert ppo.exceeds_target_kl(config, PolicyStatistics(elements=10, kl=math.nan))
    assert not ppo.exceeds_target_kl(ppo.PpoConfig(), PolicyStatistics(elements=10, kl=9.0))


def test_advantages_of_steps_do_not_apply_to_ratios_of_chunks():
    new = torch.zeros(2, 3, 1)
    with pytest.raises(OptionRefused, match="log_prob_level = 'chunk' does not apply"):
        ppo.policy_loss(ppo.PpoConfig(log_prob_level="chunk"), new, new, torch.zeros(2, 3))
    ppo.policy_loss(ppo.PpoConfig(log_prob_level="action"), new, new, torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("mask", "message"),
    [(torch.ones(2, 3), "dtype torch.float32"), (torch.ones(3, 2).bool(), r"shape \(3, 2\)")],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message):
    new = torch.zeros(2, 3, 1)
    with pytest.raises(RolloutMismatch, match=message):
        ppo.policy_loss(ppo.PpoConfig(), new, new, torch.zeros(2), mask)
