"""Losses against loops over single elements; each property catches a planted fault."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.training.rl import decoupled, levels, masks, ppo, reinforce, surrogate
from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.errors import FutureVersion, OptionRefused, RolloutMismatch
from gpu_runtime.training.rl.reference_kl import ReferenceKlConfig, reference_kl
from tests.support import rl_reference as reference
from tests.support.rl_examples import QUICK, Shape, caught, minibatch_shapes

LEVELS = ["token", "action", "chunk"]
minibatches = st.tuples(minibatch_shapes, st.sampled_from(LEVELS), st.sampled_from([None, 1.5]))


class Minibatch:
    """Log-probabilities [N, C, A], an advantage per chunk, and a mask of steps or of dims; behind it lies NaN."""

    def __init__(self, shape: Shape) -> None:
        size = (shape.rows, shape.steps, shape.dims)
        self.mask = shape.flags(*size[: 2 + shape.seed % 2], share=0.7)
        self.mask[0, 0] = True
        self.advantage = shape.numbers(shape.rows)
        self.log_prob = self._masked(shape.numbers(*size, scale=0.5)).requires_grad_()
        self.old, self.behaviour = (self._masked(shape.numbers(*size, scale=0.5)) for _ in range(2))

    def _masked(self, values: torch.Tensor) -> torch.Tensor:
        self.valid = (self.mask if self.mask.dim() == 3 else self.mask[..., None]).expand(values.shape)
        return torch.where(self.valid, values, torch.nan)

    def rows(self, level: str, *parts: torch.Tensor) -> list[tuple[float, ...]]:
        """(advantage, log-probability of each part) of every element that has a ratio of its own."""
        found = [reference.elements(level, part.tolist(), self.valid.tolist()) for part in parts]
        return [(float(self.advantage[same[0][0]]), *(one[1] for one in same)) for same in zip(*found, strict=True)]


def agree(found: torch.Tensor | float, expected: float) -> None:
    number = found.item() if isinstance(found, torch.Tensor) else found
    assert number == pytest.approx(expected, rel=1e-5, abs=1e-6)


# --- clipped objective ----------------------------------------------------------------------------------------------


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


def test_episodes_count_the_same_when_weighted_by_their_length():
    valid_nBC = torch.tensor([[[True, True], [True, False]], [[True, True], [False, False]]])
    weight = masks.episode_weight(valid_nBC)
    values = torch.tensor([[[1.0, 1.0], [5.0, 9.0]], [[1.0, 1.0], [9.0, 9.0]]])
    assert float(masks.masked_mean(values, valid_nBC, weight)) == pytest.approx(3.0)
    assert float(masks.masked_mean(values, valid_nBC)) == pytest.approx(9 / 5)


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


# --- value loss and total -------------------------------------------------------------------------------------------

value_problems = st.tuples(minibatch_shapes, st.sampled_from([None, 0.3]))


def check_value_loss(problem: tuple[Shape, float | None]) -> None:
    shape, clip = problem
    value, old, returns = (shape.numbers(shape.rows, shape.steps) for _ in range(3))
    mask = shape.flags(shape.rows, shape.steps, share=0.7)
    mask[0, 0] = True
    config = ppo.PpoConfig(value_clip=clip, huber_delta=0.8)
    found = ppo.value_loss(config, torch.where(mask, value, torch.nan), old, returns, mask)
    rows = list(zip(value[mask].tolist(), old[mask].tolist(), returns[mask].tolist(), strict=True))
    agree(found.loss, reference.mean([reference.value_objective(*row, clip, 0.8) for row in rows]))
    assert found.clipped == (sum(abs(v - o) > clip for v, o, _ in rows) if clip else 0)
    assert found.elements == len(rows)


@QUICK
@given(value_problems)
def test_the_value_loss_is_the_larger_huber_error_of_the_value_and_its_clipped_form(problem):
    check_value_loss(problem)


def test_a_squared_error_instead_of_huber_is_caught(monkeypatch):
    monkeypatch.setattr(ppo, "huber", lambda error, delta: 0.5 * error.square())
    caught(check_value_loss, value_problems)


def test_a_value_clip_that_is_ignored_is_caught(monkeypatch):
    honest = ppo.value_loss
    monkeypatch.setattr(ppo, "value_loss", lambda config, *rest: honest(replace(config, value_clip=None), *rest))
    caught(check_value_loss, value_problems)


def test_a_value_clip_needs_the_values_of_the_rollout():
    with pytest.raises(RolloutMismatch, match="old_value: missing"):
        ppo.value_loss(ppo.PpoConfig(), torch.zeros(2), None, torch.zeros(2))


def test_the_total_adds_the_value_and_subtracts_the_entropy():
    config = ppo.PpoConfig(value_coefficient=0.5, entropy_coefficient=0.1)
    parts = [torch.tensor(x) for x in (1.0, 4.0, 10.0)]
    assert float(ppo.total_loss(config, *parts)) == pytest.approx(1 + 2 - 1)
    with pytest.raises(OptionRefused, match="entropy_coefficient does not apply"):
        ppo.total_loss(config, *parts[:2])


# --- decoupled PPO --------------------------------------------------------------------------------------------------

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


# --- REINFORCE and the reference ------------------------------------------------------------------------------------

leveled = st.tuples(minibatch_shapes, st.sampled_from(LEVELS))


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
