"""Figures of an update: merged from sums, never averaged from parts."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.training.rl.decoupled import DecoupledConfig
from gpu_runtime.training.rl.diagnostics import ExplainedVariance, LogProbGap, staleness_histogram
from gpu_runtime.training.rl.errors import FutureVersion, OptionRefused
from gpu_runtime.training.rl.gae import GaeConfig
from gpu_runtime.training.rl.grpo import GrpoConfig
from gpu_runtime.training.rl.masks import moments, normalize
from gpu_runtime.training.rl.options import configure
from gpu_runtime.training.rl.ppo import PpoConfig
from gpu_runtime.training.rl.reference_kl import ReferenceKlConfig
from gpu_runtime.training.rl.reinforce import ReinforceConfig
from tests.support import rl_reference as reference
from tests.support.rl_examples import QUICK, Shape, caught

parts = st.builds(Shape, seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 40))


def check_explained_variance(shape: Shape) -> None:
    returns = shape.numbers(shape.rows) + 1000
    values = returns + shape.numbers(shape.rows, scale=0.5)
    cut = int(shape.random.integers(1, shape.rows))
    pieces = [ExplainedVariance.of(values[s], returns[s]) for s in (slice(0, cut), slice(cut, None))]
    merged = (pieces[0] + pieces[1]).value
    unexplained = reference.variance((returns - values).tolist())
    assert merged == pytest.approx(1 - unexplained / reference.variance(returns.tolist()), rel=1e-4, abs=1e-4)


@QUICK
@given(parts)
def test_explained_variance_of_parts_merges_to_that_of_the_whole(shape):
    check_explained_variance(shape)


def test_an_average_of_the_parts_explained_variances_is_caught(monkeypatch):
    class Averaged(ExplainedVariance):
        def __add__(self, other):
            return Mean((self.value + other.value) / 2)

    class Mean:
        def __init__(self, value):
            self.value = value

    monkeypatch.setitem(globals(), "ExplainedVariance", Averaged)
    caught(check_explained_variance, parts)


@QUICK
@given(st.integers(0, 30), st.floats(-1e6, 1e6))
def test_returns_without_spread_have_no_explained_variance(count, constant):
    y = torch.full((count,), constant, dtype=torch.double)
    assert math.isnan(ExplainedVariance.of(torch.zeros_like(y), y).value)
    assert math.isnan(ExplainedVariance.of(torch.zeros(1), torch.ones(1)).value)


def test_explained_variance_reads_the_mask_only():
    returns, values = torch.tensor([1.0, 2.0, math.nan]), torch.tensor([1.0, 2.0, 3.0])
    assert ExplainedVariance.of(values, returns, torch.tensor([True, True, False])).value == 1.0


def test_the_log_prob_gap_is_zero_for_the_same_numbers_and_reads_the_mask_only():
    log_prob = torch.tensor([[1.0, 2.0], [math.nan, 3.0]])
    mask = torch.tensor([[True, True], [False, True]])
    assert LogProbGap.of(log_prob, log_prob, mask) == LogProbGap(elements=3, mean_absolute=0.0, largest=0.0)
    moved = LogProbGap.of(log_prob, log_prob + torch.tensor([0.0, 0.3]), mask)
    assert (moved.mean_absolute, moved.largest) == pytest.approx((0.2, 0.3), rel=1e-6)


def test_the_staleness_histogram_counts_chunks_by_the_updates_in_between():
    assert staleness_histogram(7, torch.tensor([7, 7, 5, 6])) == {0: 2, 1: 1, 2: 1}
    assert staleness_histogram(7, []) == {}
    with pytest.raises(FutureVersion, match="behaviour version 8 is newer than the policy version 7"):
        staleness_histogram(7, [8])


def check_normalized(shape: Shape) -> None:
    values = shape.numbers(shape.rows) * 5 + 3
    mask = shape.flags(shape.rows, share=0.6)
    found = normalize(torch.where(mask, values, torch.nan), mask)
    assert bool(torch.isfinite(found).all())
    assert not bool(found[~mask].any())
    if int(mask.sum()) > 1:
        assert reference.mean(found[mask].tolist()) == pytest.approx(0, abs=1e-5)
        assert reference.unbiased_std(found[mask].tolist()) == pytest.approx(1, rel=1e-2)


@QUICK
@given(parts)
def test_normalised_advantages_have_mean_zero_and_spread_one_over_the_mask(shape):
    check_normalized(shape)


def test_a_spread_over_everything_instead_of_the_mask_is_caught(monkeypatch):
    monkeypatch.setattr(
        "gpu_runtime.training.rl.masks.moments", lambda values, mask: moments(values.nan_to_num(), None)
    )
    caught(check_normalized, parts)


def test_a_single_advantage_is_left_as_it_is():
    assert normalize(torch.tensor([5.0, 9.0]), torch.tensor([True, False])).tolist() == [5.0, 0.0]


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "options", "named"),
    [
        (GrpoConfig, {"gae_lambda": 0.9}, "gae_lambda does not apply to grpo"),
        (GrpoConfig, {"value_clip": 0.2}, "value_clip does not apply to grpo"),
        (ReinforceConfig, {"clip_low": 0.2}, "clip_low does not apply to reinforce"),
        (PpoConfig, {"group_size": 8}, "group_size does not apply to ppo"),
        (PpoConfig, {"behaviour_weight_cap": 2}, "behaviour_weight_cap does not apply to ppo"),
        (ReferenceKlConfig, {}, "reference kl needs the option coefficient"),
        (GrpoConfig, {"filter_low": 0.1}, "filter_low does not apply without filter_high"),
        (GrpoConfig, {"filter_high": 0.1}, "filter_high does not apply without filter_low"),
        (GrpoConfig, {"filter_low": 0.5, "filter_high": 0.5}, r"filter_high = 0.5 .* above 0.5"),
        (GrpoConfig, {"group_size": 1}, "group_size = 1 is not allowed; expected a whole number, 2 or more"),
        (GaeConfig, {"gamma": 1.5}, "gamma = 1.5 is not allowed; expected a finite number at least 0 and at most 1"),
        (GaeConfig, {"gamma": math.nan}, "gamma = nan"),
        (GaeConfig, {"gae_lambda": True}, "gae_lambda = True"),
        (
            GaeConfig,
            {"bootstrap": "sometimes"},
            "bootstrap = 'sometimes' is not allowed; expected one of standard, always, never",
        ),
        (PpoConfig, {"clip_low": 0}, "clip_low = 0 "),
        (PpoConfig, {"clip_high": "0.2"}, "clip_high = '0.2'"),
        (PpoConfig, {"dual_clip": 1.0}, "dual_clip = 1.0 is not allowed; expected a finite number above 1"),
        (PpoConfig, {"target_kl": -1}, "target_kl = -1"),
        (
            PpoConfig,
            {"log_prob_level": "step"},
            "log_prob_level = 'step' .* one of token, action, chunk",
        ),
        (PpoConfig, {"entropy_coefficient": -0.1}, "entropy_coefficient = -0.1"),
        (DecoupledConfig, {"behaviour_weight_cap": 0.5}, "behaviour_weight_cap = 0.5"),
        (DecoupledConfig, {"cap_action": "drop"}, "cap_action = 'drop' .* one of mask, clamp"),
        (ReferenceKlConfig, {"coefficient": 0}, "coefficient = 0 "),
        (ReinforceConfig, {"normalize_advantages": 1}, "normalize_advantages = 1 is not allowed"),
    ],
)
def test_an_option_that_does_not_apply_is_refused_by_its_name(config, options, named):
    with pytest.raises(OptionRefused, match=named) as refused:
        configure(config, options)
    assert refused.value.option in named
    assert refused.value.code == "option_refused"


def test_options_by_their_names_make_the_config_they_describe():
    assert configure(GaeConfig, {"bootstrap": "always", "gamma": 0.9}) == GaeConfig(gamma=0.9, bootstrap="always")
    assert configure(PpoConfig, {}) == PpoConfig()
