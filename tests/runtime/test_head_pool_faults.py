"""What goes wrong inside the stacked pass: the loop takes over with the same numbers, and a fault stays one's own."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from gpu_runtime.models.slots import Slot
from gpu_runtime.models.stacked.stack import HeadStack
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.pool import HeadPool
from gpu_runtime.training.pool_judge import Judge, Way
from tests.runtime.test_slots import assert_same, everything
from tests.support.head_pool import STACKABLE, Tenants, always_pool, loop_pool

COUNT, BAD = 4, 1
OTHERS = [index for index in range(COUNT) if index != BAD]


class SpoiltGradient(torch.autograd.Function):
    """The value as it is; its gradient is not finite."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")


def spoil(patch: pytest.MonkeyPatch, victim: Slot, how: Callable[[torch.Tensor], torch.Tensor]) -> list[int]:
    """``how`` is done to the victim's loss, stacked or alone; returns how often it was."""
    head, prepare = type(victim.policy.head), Slot.prepare
    error, its_inputs, done = head.error, [], []

    def prepared(slot, *arguments):
        result = prepare(slot, *arguments)
        if slot is victim:
            its_inputs.append(result.inputs)
        return result

    def spoilt(one, predicted, inputs):
        loss = error(one, predicted, inputs)
        if any(inputs is its for its in its_inputs):
            done.append(len(done))
            loss = dataclasses.replace(loss, total=how(loss.total))
        return loss

    patch.setattr(Slot, "prepare", prepared)
    patch.setattr(head, "error", spoilt)
    return done


def after_three_steps(name: str) -> tuple[Tenants, Tenants]:
    alone, together = Tenants(name, COUNT), Tenants(name, COUNT)
    plain, pool = loop_pool(), always_pool()
    for step in range(3):
        plain.train(alone.learners(step))
        pool.train(together.learners(step))
    return alone, together


@pytest.mark.parametrize("name", sorted(STACKABLE))
@pytest.mark.parametrize(
    ("how", "reason"),
    [(lambda loss: loss * float("nan"), "non_finite_loss"), (SpoiltGradient.apply, "non_finite_gradient")],
    ids=["loss", "gradient"],
)
def test_a_loss_or_gradient_that_is_not_finite_in_the_stacked_pass_is_its_owners_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, how: Callable[[torch.Tensor], torch.Tensor], reason: str
) -> None:
    alone, together = after_three_steps(name)
    victim = together.slots[BAD]
    before = everything(victim)
    done = spoil(monkeypatch, victim, how)
    monkeypatch.setattr(Slot, "loss", lambda *_: pytest.fail("the loop ran"))
    pool, learners = always_pool(), together.learners(3)
    pool.train(learners)
    monkeypatch.undo()
    loop_pool().train(alone.learners(3, OTHERS))
    assert len(done) == 1
    assert learners[BAD].member.failure.reason == reason
    assert_same(everything(victim), before)
    assert all(parameter.grad is None for parameter in victim.policy.head.parameters())
    for index in OTHERS:
        assert learners[index].member.applied
        assert_same(everything(together.slots[index]), everything(alone.slots[index]))
    # and when it comes again with good numbers, all of them go on as if nothing had happened
    alone.batch(BAD)  # what it failed on
    loop_pool().train(alone.learners(4))
    pool.train(together.learners(4))
    for index in range(COUNT):
        assert_same(everything(together.slots[index]), everything(alone.slots[index]))


@pytest.mark.parametrize("phase", ["losses", "backward"])
@pytest.mark.parametrize("name", sorted(STACKABLE))
def test_want_of_memory_in_the_stacked_pass_costs_its_speed_only(
    monkeypatch: pytest.MonkeyPatch, name: str, phase: str
) -> None:
    alone, together = after_three_steps(name)
    judge = Forced()
    pool, honest, tries = HeadPool(DeviceClock("cpu"), judge=judge), getattr(HeadStack, phase), []

    def too_large(stack: HeadStack, argument):
        tries.append(phase)
        honest(stack, argument)  # what was allocated and left behind so far
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(HeadStack, phase, too_large)
    for step in range(3, 6):
        a, b = alone.learners(step), together.learners(step)
        loop_pool().train(a)
        pool.train(b)
        assert all(learner.member.applied for learner in b)
        assert [x.member.metrics for x in a] == [x.member.metrics for x in b]
    assert len(tries) == 1, "it is not tried again and again"
    for left, right in zip(alone.slots, together.slots, strict=True):
        assert_same(everything(left), everything(right))


def test_want_of_memory_while_both_ways_are_compared_leaves_the_loops_step(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, together = after_three_steps("gr00t")
    pool = HeadPool(DeviceClock("cpu"))

    def too_large(stack: HeadStack, losses) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(HeadStack, "backward", too_large)
    for step in range(3, 6):
        a, b = alone.learners(step), together.learners(step)
        loop_pool().train(a)
        pool.train(b)
        assert [x.member.metrics for x in a] == [x.member.metrics for x in b]
    for left, right in zip(alone.slots, together.slots, strict=True):
        assert_same(everything(left), everything(right))


def test_a_gradient_that_is_not_finite_while_both_ways_are_compared_is_its_owners_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, together = after_three_steps("gr00t")
    before = everything(together.slots[BAD])
    spoil(monkeypatch, together.slots[BAD], SpoiltGradient.apply)
    learners = together.learners(3)
    HeadPool(DeviceClock("cpu")).train(learners)
    monkeypatch.undo()
    loop_pool().train(alone.learners(3, OTHERS))
    assert learners[BAD].member.failure.reason == "non_finite_gradient"
    assert_same(everything(together.slots[BAD]), before)
    for index in OTHERS:
        assert_same(everything(together.slots[index]), everything(alone.slots[index]))


class Forced(Judge):
    """Stacks what can be stacked until that is refused."""

    def way(self, signature: object) -> Way:
        return Way.STACKED if self._of(signature).equal else Way.LOOP
