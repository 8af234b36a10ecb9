"""The value loss against a loop over single elements, and the total; each property catches a planted fault."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.training.rl import ppo
from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch
from tests.support import rl_reference as reference
from tests.support.rl_examples import (
    QUICK,
    Shape,
    agree,
    caught,
    minibatch_shapes,
)

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
