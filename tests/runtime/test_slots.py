"""A tenant's slot: independent of its neighbours, exact on failure, honest about its error."""

import copy
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gpu_runtime.data.errors import ForeignStatistics
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.action_error import ActionError
from gpu_runtime.models.errors import BatchMismatch, HeadConfigurationError, NonFiniteGradient, NonFiniteLoss
from gpu_runtime.models.optimization import learning_rate
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.specs import OptimizerSpec
from tests.support.policies import SMALL_HEADS, Problem, make_spec, tap_width

EVERY_HEAD = sorted(SMALL_HEADS)


def everything(slot: Slot) -> dict[str, Any]:
    """All state that a step may change, copied."""
    return {
        "weights": {name: value.clone() for name, value in slot.policy.head.state_dict().items()},
        "optimizer": copy.deepcopy(slot.weights.optimizer.state_dict()["state"]),
        "random": slot.generator.get_state(),
        "counters": (slot.step, slot.policy_version, tuple(slot.consumed)),
        "guards": (slot.action_guard.to_json(), slot.state_guard.to_json() if slot.state_guard else None),
        "gradients": [p.grad for p in slot.policy.head.parameters() if p.grad is not None],
    }


def assert_same(a: Any, b: Any) -> None:
    """Bit equality of nested state."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            assert_same(left, right)
    else:
        assert a == b


def spoil_features(features, batch: SampleBatch):
    return [{tap: value * float("nan") for tap, value in f.items()} for f in features], batch


def spoil_actions(features, batch: SampleBatch):
    actions = batch.actions_BHA.copy()
    actions[0, 0, 0] = np.inf
    return features, dataclasses.replace(batch, actions_BHA=actions)


@pytest.mark.parametrize("name", EVERY_HEAD)
@pytest.mark.parametrize("spoil", [spoil_features, spoil_actions])
def test_a_step_with_a_non_finite_loss_changes_nothing_at_all(name: str, spoil: Callable[..., Any]):
    problem = Problem()
    slot = problem.slot(name)
    for i in range(3):
        slot.train_step(*problem.batch(8), f"p{i}")
    before = everything(slot)
    with pytest.raises(NonFiniteLoss, match=r"step 3.*partition bad"):
        slot.train_step(*spoil(*problem.batch(8)), "bad")
    assert_same(everything(slot), before)


def test_a_step_with_a_non_finite_gradient_changes_nothing_and_names_the_parameter():
    problem = Problem()
    slot = problem.slot("mlp")
    slot.train_step(*problem.batch(8), "p0")
    before = everything(slot)
    handle = slot.policy.head.out.weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(NonFiniteGradient, match=r"out\.weight.*partition bad"):
        slot.train_step(*problem.batch(8), "bad")
    handle.remove()
    assert_same(everything(slot), before)
    slot.train_step(*problem.batch(8), "p1")
    assert list(slot.consumed) == ["p0", "p1"]


def test_the_unchanged_check_would_notice_an_applied_step():
    problem = Problem()
    slot = problem.slot("mlp")
    slot.train_step(*problem.batch(8), "p0")
    before = everything(slot)
    slot.train_step(*problem.batch(8), "p1")
    with pytest.raises(AssertionError):
        assert_same(everything(slot), before)


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_a_slot_trains_the_same_alone_and_beside_others(name: str):
    def run(neighbours: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
        problem, other = Problem(), Problem(seed=9)
        slot = problem.slot(name)
        beside = [other.slot(kind) for kind in EVERY_HEAD] if neighbours else []
        losses = []
        for i in range(10):
            losses.append(slot.train_step(*problem.batch(8), f"p{i}")["loss"])
            for neighbour in beside:
                neighbour.train_step(*other.batch(8), f"n{i}")
                torch.randn(3)
        return losses, slot.policy.head.state_dict()

    alone, together = run(False), run(True)
    assert alone[0] == together[0]
    assert_same(dict(alone[1]), dict(together[1]))


def test_the_policy_version_counts_applied_updates():
    problem = Problem()
    slot = problem.slot("mlp")
    assert slot.policy_version == 0
    metrics = slot.train_step(*problem.batch(8), "p0")
    assert slot.policy_version == slot.step == 1
    assert metrics["loss"] == metrics["loss/l1"]
    assert metrics["grad_norm"] > 0
    assert metrics["learning_rate"] == pytest.approx(3e-3 / 5)


def test_gradients_are_clipped_before_the_update():
    problem = Problem()
    spec = make_spec("oft", standardize=False)
    spec = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update={"grad_clip": 0.01})})
    slot = Slot.create(spec=spec, schema=problem.schema, statistics=problem.statistics, tap_width=tap_width)
    applied = []

    def record(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        applied.append(float(torch.stack([g.norm() for g in gradients]).norm()))

    slot.weights.optimizer.register_step_pre_hook(record)
    assert slot.train_step(*problem.batch(8), "p")["grad_norm"] > 0.02
    assert applied == [pytest.approx(0.01, rel=1e-3)]


def test_the_learning_rate_warms_up_then_falls_to_its_floor():
    spec = OptimizerSpec(lr=1e-3, warmup_steps=10, min_lr_ratio=0.02)
    rates = [learning_rate(spec, step=step, total_steps=100) for step in range(101)]
    assert rates[0] == pytest.approx(1e-4)
    assert rates[9] == rates[10] == pytest.approx(1e-3)
    assert rates[55] == pytest.approx(0.51e-3)
    assert rates[100] == pytest.approx(2e-5)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))


def test_a_constant_schedule_stays_at_its_rate():
    spec = OptimizerSpec(lr=1e-3, warmup_steps=0, schedule="constant")
    assert {learning_rate(spec, step=step, total_steps=50) for step in (0, 20, 49)} == {1e-3}


# --- statistics -------------------------------------------------------------------------------------------------


def test_foreign_statistics_are_refused_by_dimension_and_change_nothing():
    problem, foreign = Problem(), Problem()
    mean = problem.statistics.action
    shifted = mean.model_copy(
        update={
            name: (getattr(mean, name)[0], getattr(mean, name)[1] + 5, *getattr(mean, name)[2:])
            for name in ("mean", "min", "max", "q01", "q99")
        }
    )
    foreign.statistics = problem.statistics.model_copy(update={"action": shifted})
    slot = foreign.slot("mlp", fitted=False)
    with pytest.raises(ForeignStatistics, match=r"dimension 1 \(y\)"):
        slot.fit(*foreign.batch(64))
    slot.policy.head.fit(foreign.batch(64)[0])
    for i in range(3):
        slot.train_step(*foreign.batch(16), f"p{i}")  # 48 samples: too few to judge
    before = everything(slot)
    with pytest.raises(ForeignStatistics, match=r"dimension 1 \(y\)"):
        slot.train_step(*foreign.batch(16), "p3")
    assert_same(everything(slot), before)


def test_foreign_statistics_of_the_state_are_refused_too():
    problem = Problem()
    slot = problem.slot("oft")
    features, batch = problem.batch(64)
    with pytest.raises(ForeignStatistics, match="joint_0"):
        slot.train_step(features, dataclasses.replace(batch, state_BS=batch.state_BS + np.array([9, 0])), "p0")


def test_own_data_is_never_called_foreign():
    problem = Problem()
    slot = problem.slot("oft")
    shares = [slot.train_step(*problem.batch(16), f"p{i}")["out_of_range"] for i in range(20)]
    assert shares[-1] < 0.1


def test_a_whole_dataset_is_judged_at_once():
    problem = Problem()
    policy = problem.slot("mlp").policy
    _, batch = problem.batch(200)
    policy.check_statistics(batch.actions_BHA[:, 0], batch.state_BS)
    with pytest.raises(ForeignStatistics, match="gripper"):
        policy.check_statistics(batch.actions_BHA[:, 0] + np.array([0, 0, 3]), batch.state_BS)


# --- shapes -----------------------------------------------------------------------------------------------------


def test_actions_of_another_horizon_are_refused_with_both_shapes():
    problem = Problem()
    slot = problem.slot("mlp")
    features, batch = problem.batch(4)
    short = dataclasses.replace(batch, actions_BHA=batch.actions_BHA[:, :2], mask_BH=batch.mask_BH[:, :2])
    with pytest.raises(BatchMismatch, match=r"\[4, 2, 3\].*allowed.*4, 3"):
        slot.train_step(features, short, "p")


def test_features_and_samples_must_be_equally_many():
    problem = Problem()
    slot = problem.slot("mlp")
    features, batch = problem.batch(4)
    with pytest.raises(BatchMismatch, match="3 features for 4 samples"):
        slot.evaluate(features[:3], batch)


def test_a_policy_that_wants_a_state_is_refused_where_there_is_none():
    problem = Problem()
    schema = problem.schema.model_copy(update={"state": None})
    with pytest.raises(HeadConfigurationError, match=r"schema\.state"):
        Slot.create(spec=make_spec("mlp"), schema=schema, statistics=problem.statistics, tap_width=tap_width)


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_a_policy_may_do_without_the_state(name: str):
    problem = Problem()
    spec = make_spec(name)
    blind = spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"use_state": False})})
    slot = Slot.create(spec=blind, schema=problem.schema, statistics=problem.statistics, tap_width=tap_width)
    slot.fit(*problem.batch(64))
    losses = [slot.train_step(*problem.batch(8), f"p{i}")["loss"] for i in range(30)]
    assert np.mean(losses[-5:]) < losses[0]


def test_a_dimension_that_never_moves_is_reproduced_exactly():
    problem = Problem()
    still = {
        name: (*getattr(problem.statistics.action, name)[:2], 0.25) for name in ("mean", "min", "max", "q01", "q99")
    }
    still["std"] = (*problem.statistics.action.std[:2], 0.0)
    problem.statistics = problem.statistics.model_copy(
        update={"action": problem.statistics.action.model_copy(update=still)}
    )
    slot = problem.slot("mlp", fitted=False)
    features, batch = problem.batch(64)
    batch.actions_BHA[..., 2] = 0.25
    slot.fit(features, batch)
    assert np.isfinite(slot.train_step(features, batch, "p")["loss"])
    assert (slot.act(features, batch.state_BS, seed=0)[..., 2] == np.float32(0.25)).all()


# --- evaluation -------------------------------------------------------------------------------------------------


def test_the_action_error_is_in_real_units_over_valid_steps_and_adds_up():
    actual = np.array([[[1.0, 10.0], [2.0, 20.0]], [[3.0, 30.0], [np.nan, np.nan]]])
    predicted = np.where(np.isnan(actual), 0, actual) + np.array([0.5, -2.0])
    mask = np.array([[True, True], [True, False]])
    mean = np.array([2.0, 20.0])

    def measure(rows: slice) -> ActionError:
        return ActionError.measure(
            names=("x", "y"),
            predicted_BHA=predicted[rows],
            actual_BHA=actual[rows],
            mask_BH=mask[rows],
            mean_action_A=mean,
        )

    whole, halves = measure(slice(None)), measure(slice(0, 1)) + measure(slice(1, 2))
    assert whole.metrics() == halves.metrics()
    assert whole.steps == 3
    assert whole.metrics()["action_error/x"] == pytest.approx(0.5)
    assert whole.metrics()["action_error/y"] == pytest.approx(2.0)
    assert whole.mean == pytest.approx(1.25)
    assert whole.baseline_mean == pytest.approx((2 / 3 + 20 / 3) / 2)


def test_evaluating_twice_gives_the_same_error_and_leaves_training_untouched():
    problem = Problem()
    slot = problem.slot("gr00t")
    slot.train_step(*problem.batch(8), "p0")
    held_out = problem.batch(16)
    before = everything(slot)
    assert slot.evaluate(*held_out).metrics() == slot.evaluate(*held_out).metrics()
    assert_same(everything(slot), before)


def test_action_errors_of_different_robots_do_not_add():
    error = ActionError(names=("x",), absolute_A=np.ones(1), baseline_A=np.ones(1), steps=1)
    with pytest.raises(BatchMismatch, match="y"):
        error + dataclasses.replace(error, names=("y",))
