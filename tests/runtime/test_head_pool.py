"""Heads that train in one call: bit for bit what each does alone, whoever else is there and whatever befalls them."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runtime.models.checkpoint import load_slot, save_slot
from gpu_runtime.models.heads import randomness
from gpu_runtime.models.slots import Slot
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.pool import HeadPool
from gpu_runtime.training.pool_judge import COMPARED_STEPS, Judge, Way
from tests.runtime.test_slots import assert_same, everything
from tests.support.head_pool import STACKABLE, Tenants, always_pool, loop_pool
from tests.support.policies import tap_width

EVERY_HEAD = sorted(STACKABLE)


def lives_in_a_stack(slot: Slot) -> bool:
    """Whether its parameters are rows of something larger."""
    wholes = [group.whole for group in slot.weights.groups]
    return all(whole.untyped_storage().nbytes() > whole.nbytes for whole in wholes)


def same_tenants(a: Tenants, b: Tenants) -> None:
    for left, right in zip(a.slots, b.slots, strict=True):
        assert_same(everything(left), everything(right))


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_fifty_pooled_steps_of_eight_tenants_equal_those_of_each_alone_bit_for_bit(name: str):
    alone, together = Tenants(name, 8), Tenants(name, 8)
    plain, pool = loop_pool(), always_pool()
    for step in range(50):
        a, b = alone.learners(step), together.learners(step)
        plain.train(a)
        pool.train(b)
        assert [x.member.metrics for x in a] == [x.member.metrics for x in b]
    assert all(map(lives_in_a_stack, together.slots))
    assert not any(map(lives_in_a_stack, alone.slots))
    assert {slot.step for slot in together.slots} == {50}
    same_tenants(alone, together)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sets(st.integers(0, 3)), min_size=2, max_size=6))
def test_who_else_is_in_the_pool_never_changes_a_trajectory(groups: list[set[int]]):
    alone, together = Tenants("gr00t", 4), Tenants("gr00t", 4)
    plain, pool = loop_pool(), always_pool()
    for step, group in enumerate(groups):
        plain.train(alone.learners(step, sorted(group)))
        pool.train(together.learners(step, sorted(group, reverse=True)))
    same_tenants(alone, together)


def test_a_pool_whose_tenants_share_a_generator_is_caught(monkeypatch: pytest.MonkeyPatch):
    plain = randomness.Draws.__init__

    def shared(self, seeds, device):
        plain(self, seeds, device)
        self.generators = [self.generators[0]] * len(seeds)

    alone, together = Tenants("gr00t", 3), Tenants("gr00t", 3)
    monkeypatch.setattr(randomness.Draws, "__init__", shared)
    pool, loop = always_pool(), loop_pool()
    for step in range(3):
        loop.train(alone.learners(step))
        pool.train(together.learners(step))
    with pytest.raises(AssertionError):
        same_tenants(alone, together)


@pytest.mark.parametrize("fault", ["features", "weights", "shape", "stop"])
def test_the_fault_of_one_tenant_leaves_the_others_and_its_own_state_untouched(fault: str):
    alone, together = Tenants("gr00t", 4), Tenants("gr00t", 4)
    plain, pool = loop_pool(), always_pool()
    for step in range(3):
        plain.train(alone.learners(step))
        pool.train(together.learners(step))
    before = everything(together.slots[1])
    plain.train([x for i, x in enumerate(alone.learners(3)) if i != 1])
    learners = together.learners(3)
    bad = learners[1].member
    if fault == "features":
        learners[1] = dataclasses.replace(
            learners[1], features=[{tap: x * float("nan") for tap, x in f.items()} for f in learners[1].features]
        )
    elif fault == "weights":  # finite, but what follows from them is not
        together.slots[1].policy.head.decoder[-1].weight.data.fill_(3e38)
        before = everything(together.slots[1])
    elif fault == "shape":
        bad.batch = dataclasses.replace(bad.batch, actions_BHA=bad.batch.actions_BHA[:, :2])
    else:
        bad.job.stopped = True
    pool.train(learners)
    assert not bad.applied
    assert bad.skipped == (fault == "stop")
    assert (bad.failure is None) == (fault == "stop")
    assert_same(everything(together.slots[1]), before)
    for index in (0, 2, 3):
        assert_same(everything(together.slots[index]), everything(alone.slots[index]))


def test_a_checkpoint_out_of_the_pool_resumes_as_if_nothing_had_happened(tmp_path: Path):
    straight, resumed = Tenants("gr00t", 3), Tenants("gr00t", 3)
    pool, other = always_pool(), always_pool()
    for step in range(4):
        pool.train(straight.learners(step))
        other.train(resumed.learners(step))
    for index, slot in enumerate(resumed.slots):
        save_slot(slot, tmp_path / str(index))
        resumed.slots[index] = load_slot(tmp_path / str(index), tap_width=tap_width)
        resumed.jobs[index].slot = resumed.slots[index]
    for step in range(4, 8):
        pool.train(straight.learners(step))
        other.train(resumed.learners(step))
    same_tenants(straight, resumed)


def test_heads_that_leave_the_pool_get_tensors_of_their_own():
    tenants, pool = Tenants("oft", 3), always_pool()
    pool.train(tenants.learners(0))
    assert all(map(lives_in_a_stack, tenants.slots))
    pool.train(tenants.learners(1, [0, 1]))
    assert [lives_in_a_stack(slot) for slot in tenants.slots] == [True, True, False]


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_a_new_pool_compares_both_ways_first_and_finds_them_equal(name: str):
    alone, together = Tenants(name, 3), Tenants(name, 3)
    seen: list[bool] = []

    class Watched(Judge):
        def compared(self, signature, *, equal, loop_ns, stacked_ns):
            seen.append(equal)
            assert loop_ns > 0
            assert stacked_ns > 0
            super().compared(signature, equal=equal, loop_ns=loop_ns, stacked_ns=stacked_ns)

    plain, pool = loop_pool(), HeadPool(DeviceClock("cpu"), judge=Watched())
    for step in range(6):
        plain.train(alone.learners(step))
        pool.train(together.learners(step))
    assert seen == [True] * COMPARED_STEPS
    same_tenants(alone, together)


def test_the_judge_takes_the_faster_way_and_never_one_that_differs():
    judge = Judge()
    for _ in range(COMPARED_STEPS):
        assert judge.way("a") is Way.BOTH
        judge.compared("a", equal=True, loop_ns=10, stacked_ns=5)
        judge.compared("b", equal=True, loop_ns=5, stacked_ns=10)
        judge.compared("c", equal=False, loop_ns=10, stacked_ns=5)
    judge.refuse("d")
    assert [judge.way(name) for name in "abcd"] == [Way.STACKED, Way.LOOP, Way.LOOP, Way.LOOP]


def test_the_time_of_a_joint_step_is_split_among_its_members():
    tenants, pool = Tenants("gr00t", 3), always_pool()
    learners = tenants.learners(0)
    pool.train(learners)
    assert all(learner.member.private_ns > 0 for learner in learners)


def test_a_width_that_leaves_elements_over_is_never_stacked():
    tenants, pool = Tenants("mlp", 2, width=32), always_pool()
    pool.train(tenants.learners(0))
    assert not any(map(lives_in_a_stack, tenants.slots))
