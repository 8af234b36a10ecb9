"""Starts of training batches: the same for the same step, never an evaluation's, groups together."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runtime.inference.messages import SEED_END
from gpu_runtime.workflows.rl_plan import RlPlan, again


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), step=st.integers(1, 10**6), groups=st.integers(1, 20), size=st.integers(1, 5))
def test_a_batch_follows_from_seed_and_step_alone(seed: int, step: int, groups: int, size: int) -> None:
    plan = RlPlan(seed=seed, episodes=groups * size, group_size=size)
    tries = list(plan.tries(step))
    assert tries == list(plan.tries(step))
    assert [planned.index for planned in tries] == list(range(groups * size))
    assert all(2**20 <= planned.seed < 2**31 for planned in tries), "below are evaluations' seeds"
    starts = {planned.group: planned.seed for planned in tries}
    assert len(set(starts.values())) == groups, "groups start apart"
    assert all(planned.seed == starts[planned.group] for planned in tries), "members of a group start alike"
    assert [planned.group for planned in tries] == [at // size for at in range(groups * size)]
    assert len({planned.noise for planned in tries}) == len(tries), "and act apart"


def test_other_steps_and_other_jobs_start_elsewhere() -> None:
    def starts(seed: int, step: int) -> set[int]:
        return {planned.seed for planned in RlPlan(seed=seed, episodes=64, group_size=1).tries(step)}

    assert not starts(1, 5) & starts(1, 6)
    assert not starts(1, 5) & starts(2, 5)


def test_a_lost_try_starts_alike_and_acts_otherwise_and_noise_stays_in_its_range() -> None:
    tries = list(RlPlan(seed=3, episodes=50, group_size=1).tries(2))
    noises = {planned.noise for planned in tries}
    for losses in range(1, 9):
        replayed = again(tries, losses)
        assert [(planned.seed, planned.group, planned.index) for planned in replayed] == [
            (planned.seed, planned.group, planned.index) for planned in tries
        ]
        fresh = {planned.noise for planned in replayed}
        assert not fresh & noises
        assert all(noise >= 0 and noise + 2**20 < SEED_END for noise in fresh)
