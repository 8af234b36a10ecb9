"""Many worlds in one process: the same results as worlds one by one, with real processes and without.

Shapes: B seats of a session, C actions of a chunk, A = 2 action dimensions.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from gpu_runtime.environments.base import EnvironmentKind, Proprioception, StepResult
from gpu_runtime.environments.errors import EnvironmentLost, LostReason, UnknownCamera
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.process import EnvironmentProcess
from gpu_runtime.environments.reach import ReachEnvironment
from gpu_runtime.environments.reach_vector import ReachWorlds
from gpu_runtime.environments.registry import vectorises
from gpu_runtime.environments.results import read_chunk, read_reset
from gpu_runtime.environments.slot import Slot, TryRules
from gpu_runtime.environments.vector_slot import VectorSlots
from tests.support.environments import REACH, pool_of, still, wanted

SEATS = 5
RULES = [TryRules(), TryRules(steps_max=7), TryRules(ends_on_termination=False)]
Answers = list[tuple[Any, ...]]


def plain(answer: Any) -> Any:
    """What can be compared with ``==``, bit for bit."""
    if dataclasses.is_dataclass(answer):
        return {field.name: plain(getattr(answer, field.name)) for field in dataclasses.fields(answer)}
    if isinstance(answer, np.ndarray):
        return answer.dtype.str, answer.shape, answer.tobytes()
    if isinstance(answer, tuple):
        return tuple(map(plain, answer))
    return answer


class Play:
    """A random course of one session, drawn from ``seed`` and from what the session answers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.running_B = np.ones(SEATS, bool)

    def seeds(self) -> dict[int, int]:
        """New tries where there is none, and now and then in the midst of one."""
        chosen = np.flatnonzero(
            ~self.running_B & (self.random.random(SEATS) < 0.6) | (self.random.random(SEATS) < 0.1)
        )
        self.running_B[chosen] = True
        return {int(slot): int(self.random.integers(10_000)) for slot in chosen}

    def actions(self, goal_delta_B2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Towards the goals with noise, so that many tries end inside a chunk; and who takes part."""
        chunk = int(self.random.integers(1, 7))
        towards_B2 = np.clip(goal_delta_B2 / 0.1 / chunk, -1, 1)
        noise_BCA = self.random.normal(0, 0.3, (SEATS, chunk, 2))
        active_B = self.running_B & (self.random.random(SEATS) < 0.8)
        return (towards_B2[:, None] + noise_BCA).astype(np.float32), active_B


async def course(pool: EnvironmentPool, rules: TryRules, seed: int) -> tuple[Answers, int]:
    """All answers of one random course, and the count of its processes."""
    play, answers = Play(seed), []
    delta_B2 = np.zeros((SEATS, 2))
    async with await pool.open(wanted(seats=SEATS, cameras=("top",), rules=rules)) as session:
        for slot, reset in enumerate(await session.reset(range(seed, seed + SEATS))):
            answers.append((slot, plain(reset)))
            delta_B2[slot] = reset.observation.state_S[2:]
        for _ in range(12):
            for slot, reset in (await session.reset_some(play.seeds())).items():
                answers.append((slot, plain(reset)))
                delta_B2[slot] = reset.observation.state_S[2:]
            actions_BCA, active_B = play.actions(delta_B2)
            for slot, result in enumerate(await session.step(actions_BCA, active_B)):
                answers.append((slot, plain(result)))
                if result is not None:
                    delta_B2[slot] = result.observation.state_S[2:]
                    play.running_B[slot] = not result.ended
        return answers, len(session.processes)


@pytest.mark.parametrize("rules", RULES, ids=["usual", "cut off early", "on after success"])
async def test_a_session_on_one_vectorised_process_answers_what_single_worlds_answer(rules: TryRules) -> None:
    seeds = range(20)
    async with pool_of(seats_per_process=3) as pool:
        single = [await course(pool, rules, seed) for seed in seeds]
    async with pool_of(device="cuda", seats_per_process=3) as pool:
        together = [await course(pool, rules, seed) for seed in seeds]
    assert [answers for answers, _ in together] == [answers for answers, _ in single]
    assert {processes for _, processes in single} == {2}
    assert {processes for _, processes in together} == {1}
    chunks = [
        answer for answers, _ in together for _, answer in answers if answer is not None and "executed" in answer
    ]
    assert sum(chunk["executed"] < chunk["rewards_C"][1][0] for chunk in chunks) > 10, "tries end inside chunks"
    assert sum(chunk["success_once"] for chunk in chunks) > 10


class LeakyWorlds(ReachWorlds):
    """Planted: a world that is not active moves all the same."""

    def step(self, actions_NA: np.ndarray, active_N: np.ndarray) -> dict[int, StepResult]:
        results = super().step(actions_NA, np.ones_like(active_N))
        return {world: results[world] for world in np.flatnonzero(active_N).tolist()}


class SharedSeedWorlds(ReachWorlds):
    """Planted: worlds that are reset together start alike."""

    def reset(self, seeds: Mapping[int, int]) -> dict[int, Proprioception]:
        return super().reset(dict.fromkeys(seeds, min(seeds.values(), default=0)))


def in_process(make: Callable[[ReachEnvironment, int], ReachWorlds], seed: int) -> tuple[Answers, Answers]:
    """A short random course on single slots and on worlds of ``make``, both without processes."""
    one = ReachEnvironment(size=24)
    schema, play, several, single = one.schema(), Play(seed), Answers(), Answers()
    slots = [Slot(ReachEnvironment(size=24), schema) for _ in range(SEATS)]
    vector = VectorSlots(make(one, SEATS), schema)
    vector.warm_up()
    delta_B2 = np.zeros((SEATS, 2))
    seeds = {slot: seed + slot for slot in range(SEATS)}
    for _ in range(8):
        for slot, answer in zip(seeds, vector.reset(list(seeds.items())) if seeds else [], strict=True):
            several.append((slot, plain(read_reset(answer, schema))))
            alone = read_reset(slots[slot].reset(seeds[slot]), schema)
            single.append((slot, plain(alone)))
            delta_B2[slot] = alone.observation.state_S[2:]
        actions_BCA, active_B = play.actions(delta_B2)
        chunk, active = actions_BCA.shape[1], np.flatnonzero(active_B).tolist()
        for slot, answer in zip(active, vector.step(active, actions_BCA[active]) if active else [], strict=True):
            several.append((slot, plain(read_chunk(answer, schema, chunk))))
            result = read_chunk(slots[slot].step(actions_BCA[slot]), schema, chunk)
            single.append((slot, plain(result)))
            delta_B2[slot] = result.observation.state_S[2:]
            play.running_B[slot] = not result.ended
        seeds = play.seeds()
    return several, single


@pytest.mark.parametrize(
    ("make", "equal"), [(ReachWorlds, True), (LeakyWorlds, False), (SharedSeedWorlds, False)], ids=lambda one: str(one)
)
def test_worlds_that_leak_into_each_other_are_found_out(
    make: Callable[[ReachEnvironment, int], ReachWorlds], equal: bool
) -> None:
    courses = [in_process(make, seed) for seed in range(10)]
    assert [several == single for several, single in courses] == [equal] * len(courses)


def test_a_world_that_rests_may_turn_to_nonsense_without_being_noticed_and_one_that_plays_may_not() -> None:
    class Broken(ReachWorlds):
        def step(self, actions_NA: np.ndarray, active_N: np.ndarray) -> dict[int, StepResult]:
            results = super().step(actions_NA, active_N)
            return {
                world: dataclasses.replace(result, reward=float("nan")) if world == 1 else result
                for world, result in results.items()
            }

    one = ReachEnvironment()
    slots = VectorSlots(Broken(one, 3), one.schema())
    slots.reset([(0, 1), (1, 2), (2, 3)])
    read = functools.partial(read_chunk, schema=one.schema(), steps=2)
    fine = [read(answer) for answer in slots.step([0, 2], still(2))]
    assert [result.executed for result in fine] == [2, 2]
    first, second, third = slots.step([0, 1, 2], still(3))
    assert (read(first).executed, read(third).executed) == (2, 2)
    with pytest.raises(EnvironmentLost, match="rewards") as lost:
        read(second)
    assert lost.value.reason is LostReason.NOT_FINITE


async def pids_of(pool: EnvironmentPool, seats: int) -> list[EnvironmentProcess]:
    async with await pool.open(wanted(seats=seats)) as session:
        resets = await session.reset(range(seats))
        assert len({reset.initial_state for reset in resets}) == seats
        assert len(await session.step(still(seats))) == seats
        return list(session.processes)


async def test_a_vectorised_process_serves_fewer_seats_grows_to_more_and_never_serves_a_single_one() -> None:
    async with pool_of(device="cuda", seats_per_process=2) as pool:
        (five,) = await pids_of(pool, 5)
        assert await pids_of(pool, 3) == [five]
        assert await pids_of(pool, 8) == [five]
        (alone,) = await pids_of(pool, 1)
        assert alone is not five
        assert (five.vector_device, alone.vector_device) == ("cuda", None)


async def test_a_session_may_still_say_how_many_processes_it_wants() -> None:
    async with pool_of(device="cuda") as pool:
        async with await pool.open(wanted(seats=5, processes=2)) as session:
            assert [process.vector_device for process in session.processes] == ["cuda", "cuda"]
            resets = await session.reset(range(5))
            assert len({reset.initial_state for reset in resets}) == 5
        async with await pool.open(wanted(seats=3, processes=2)) as session:
            assert sorted(str(process.vector_device) for process in session.processes) == ["None", "cuda"]
        with pytest.raises(UnknownCamera, match="no camera 'hand'; allowed: top"):
            await pool.open(wanted(seats=2, cameras=("hand",)))


@pytest.mark.parametrize(
    ("kind", "device", "answer"),
    [
        (EnvironmentKind(env_id=REACH), "cuda", True),
        (EnvironmentKind(env_id=REACH), "cpu", False),
        (EnvironmentKind(env_id="PushCube-v1"), "cuda", True),
        (EnvironmentKind(env_id="PushCube-v1"), "cpu", False),
        (EnvironmentKind(env_id="PushCube-v1", exact=True), "cuda", False),
        (EnvironmentKind(env_id="PushCube-v1", control_mode="pd_ee_target_delta_pos"), "cuda", False),
        (EnvironmentKind(env_id="PegInsertionSide-v1"), "cuda", False),  # every world has a peg of another size
        (EnvironmentKind(env_id="gym_pusht/PushT-v0"), "cuda", False),
        (EnvironmentKind(env_id="libero_spatial/0"), "cuda", False),
    ],
)
def test_one_place_decides_who_shares_a_process(kind: EnvironmentKind, device: str, answer: bool) -> None:
    assert vectorises(kind, device) is answer
