"""Sessions on real child processes: what a chunk answers, reproducibility, replay of a demonstration."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.environments.errors import (
    SeatsRefused,
    SessionError,
    SimulatorMissing,
    UnknownCamera,
    UnknownEnvironment,
    WrongAction,
)
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.reach import ReachEnvironment
from gpu_runtime.environments.record import SIMULATOR_MISSING
from gpu_runtime.environments.record import main as record
from gpu_runtime.environments.session import EnvironmentSession
from gpu_runtime.environments.slot import TryRules
from tests.support.environments import REACH, pool_of, still, wanted

PUSHT = "gym_pusht/PushT-v0"


def expert_plan(seed: int) -> np.ndarray:
    """The expert's actions of one try of reach, [N, 2]."""
    environment, expert, plan = ReachEnvironment(), expert_for(REACH), []
    environment.reset(seed)
    while not environment.succeeded():
        plan.append(expert(environment.privileged()))
        environment.step(plan[-1])
    return np.stack(plan)


async def test_a_session_over_two_processes_does_what_the_environments_do_one_by_one() -> None:
    random = np.random.default_rng(0)
    actions_KBCA = random.uniform(-1, 1, (3, 5, 4, 2)).astype(np.float32)
    async with pool_of() as pool, await pool.open(wanted(seats=5, processes=2, cameras=("top",))) as session:
        assert len({process.pid for process in session.processes}) == 2
        resets = await session.reset(range(10, 15))
        chunks = [await session.step(actions_BCA) for actions_BCA in actions_KBCA]
    assert session.steps == 60
    for slot in range(5):
        alone = ReachEnvironment()
        state = alone.reset(10 + slot).state_S
        assert np.array_equal(resets[slot].observation.state_S, state)
        assert resets[slot].observation.instruction == alone.instruction
        for chunk, actions_BCA in zip(chunks, actions_KBCA, strict=True):
            results = [alone.step(action) for action in actions_BCA[slot]]
            answer = chunk[slot]
            assert answer is not None
            assert np.array_equal(answer.rewards_C, np.array([r.reward for r in results], np.float32))
            assert np.array_equal(answer.observation.state_S, results[-1].observation.state_S)
            assert np.array_equal(answer.observation.images[0], alone.render()["observation.images.top"])
            assert (answer.executed, answer.ended, answer.final_observation) == (4, False, None)


async def test_a_chunk_stops_at_success_with_zero_rewards_after_it() -> None:
    plan = expert_plan(3)
    chunk = np.concatenate([plan, np.ones((4, 2), np.float32)])
    async with pool_of() as pool, await pool.open(wanted()) as session:
        await session.reset([3])
        (result,) = await session.step(chunk[None])
        assert result is not None
        assert (result.executed, result.terminated, result.truncated) == (len(plan), True, False)
        assert result.success
        assert result.success_once
        assert result.rewards_C[len(plan) - 1] > 0.9
        assert np.array_equal(result.rewards_C[len(plan) :], np.zeros(4))
        assert result.final_observation is result.observation
        with pytest.raises(SessionError, match=r"slots \[0\] have no try in progress"):
            await session.step(still(1))
        again = await session.reset_some({0: 4})
        assert not again[0].solved
        (fresh,) = await session.step(still(1))
        assert fresh is not None
        assert not fresh.success_once


async def test_time_that_runs_out_inside_a_chunk_is_truncation_with_its_final_observation() -> None:
    async with pool_of() as pool, await pool.open(wanted()) as session:
        start = (await session.reset([3]))[0].observation.state_S
        (first,) = await session.step(still(1, 15))
        (last,) = await session.step(still(1, 15))
    assert first is not None
    assert last is not None
    assert not first.ended
    assert (last.executed, last.terminated, last.truncated, last.success) == (5, False, True, False)
    assert last.final_observation is not None
    assert np.array_equal(last.final_observation.state_S, start)


async def test_a_try_may_be_cut_off_earlier_than_the_environment_does() -> None:
    async with pool_of() as pool:
        async with await pool.open(wanted(rules=TryRules(steps_max=7))) as session:
            await session.reset([3])
            first, last = (await session.step(still(1, 5)))[0], (await session.step(still(1, 5)))[0]
            assert first is not None
            assert last is not None
            assert (first.executed, first.ended) == (5, False)
            assert (last.executed, last.terminated, last.truncated) == (2, False, True)
            assert last.final_observation is not None
            pid = session.processes[0].pid
        async with await pool.open(wanted()) as session:  # the next session has its own rules
            assert session.processes[0].pid == pid
            await session.reset([3])
            (whole,) = await session.step(still(1, 30))
            assert whole is not None
            assert whole.executed == 20
        with pytest.raises(SessionError, match=r"steps_max: 0; allowed: 1 or more"):
            await pool.open(wanted(rules=TryRules(steps_max=0)))


async def test_a_try_that_goes_on_after_success_tells_success_once_from_success_at_the_end() -> None:
    plan = expert_plan(3)
    rest = np.zeros((25 - len(plan), 2), np.float32)
    actions = np.stack([np.concatenate([plan, rest]), np.concatenate([plan, rest + np.array([1.0, 0.0])])])
    async with pool_of() as pool:
        async with await pool.open(wanted(seats=2, rules=TryRules(ends_on_termination=False))) as session:
            await session.reset([3, 3])
            results = await session.step(actions)
    for result, stays in zip(results, (True, False), strict=True):
        assert result is not None
        assert (result.executed, result.terminated, result.truncated) == (20, False, True)
        assert (result.success_once, result.success) == (True, stays)


async def test_inactive_environments_do_not_move() -> None:
    async with pool_of() as pool, await pool.open(wanted(seats=3, processes=3)) as session:
        await session.reset([1, 2, 3])
        right = np.ones((3, 1, 2), np.float32) * 0.5
        first = await session.step(right, np.array([True, False, True]))
        assert [result is None for result in first] == [False, True, False]
        second = await session.step(right)
    assert second[1] is not None
    alone = ReachEnvironment()
    alone.reset(2)
    assert np.array_equal(second[1].observation.state_S, alone.step(right[1, 0]).observation.state_S)


async def test_starts_that_are_solved_are_reported_and_different_starts_can_be_counted() -> None:
    environment = ReachEnvironment()

    def solved(seed: int) -> bool:
        environment.reset(seed)
        return environment.succeeded()

    lucky = next(seed for seed in range(10_000) if solved(seed))
    async with pool_of() as pool, await pool.open(wanted(seats=4)) as session:
        resets = await session.reset([lucky, 7, 8, 7])
    assert [reset.solved for reset in resets] == [True, False, False, False]
    assert len({reset.initial_state for reset in resets}) == 3
    assert resets[1].initial_state == resets[3].initial_state


@pytest.mark.parametrize(
    ("actions", "active", "error", "words"),
    [
        (np.zeros((1, 2, 2)), None, WrongAction, r"shape \(1, 2, 2\); it must be \(2, C >= 1, 2\).*velocity_x"),
        (np.zeros((2, 2, 3)), None, WrongAction, "velocity_x"),
        (np.zeros((2, 0, 2)), None, WrongAction, "C >= 1"),
        (np.full((2, 1, 2), np.nan), None, WrongAction, "not finite"),
        (np.zeros((2, 1, 2)), np.array([1, 0]), WrongAction, "active is int64"),
        (np.zeros((2, 1, 2)), np.array([True]), WrongAction, r"must be bool \(2,\)"),
    ],
)
async def test_wrong_actions_are_refused_before_anything_moves(
    actions: np.ndarray, active: np.ndarray | None, error: type[Exception], words: str
) -> None:
    async with pool_of() as pool, await pool.open(wanted(seats=2)) as session:
        start = await session.reset([1, 2])
        with pytest.raises(error, match=words):
            await session.step(actions, active)
        result = (await session.step(still(2)))[0]
        assert result is not None
        assert np.array_equal(result.observation.state_S, start[0].observation.state_S)


async def test_wrong_seeds_and_a_closed_session_are_refused() -> None:
    async with pool_of() as pool:
        session = await pool.open(wanted(seats=2))
        with pytest.raises(SessionError, match="no try in progress"):
            await session.step(still(2))
        with pytest.raises(SessionError, match="1 for 2 environments"):
            await session.reset([1])
        with pytest.raises(SessionError, match="slot 2; allowed: 0 to 1"):
            await session.reset_some({2: 0})
        with pytest.raises(SessionError, match="seed -1 of slot 0"):
            await session.reset_some({0: -1})
        await session.close()
        await session.close()
        with pytest.raises(SessionError, match="closed"):
            await session.reset([1, 2])


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        (wanted("atari/Pong-v5"), UnknownEnvironment, "belongs to no known simulator"),
        (wanted("joynexus/Reach-v9"), UnknownEnvironment, "allowed: joynexus/Reach-v0"),
        (wanted(cameras=("hand",)), UnknownCamera, "no camera 'hand'; allowed: top"),
        (wanted(seats=99), SeatsRefused, "99 for tenant alice; allowed: 1 to 16"),
        (wanted(seats=2, processes=3), SessionError, "allowed: 1 to 2"),
    ],
)
async def test_what_cannot_be_opened_is_refused_by_name_and_holds_no_seat(
    spec: object, error: type[Exception], words: str
) -> None:
    async with pool_of() as pool:
        with pytest.raises(error, match=words):
            await pool.open(spec)  # type: ignore[arg-type]
        assert (pool.status().seats, pool.status().processes_used) == ({}, 0)


async def replay(session: EnvironmentSession, out: Path, chunk: int) -> None:
    """Every recorded episode, its actions in chunks: success with the last action, not before."""
    dataset = LeRobotDataset.open(out)
    assert dataset.schema.signature == session.schema.signature
    seeds, first = json.loads((out / "meta/recording.json").read_text())["seeds"], 0
    for episode, seed in zip(dataset.episodes, seeds, strict=True):
        actions_NA = dataset.actions_NA()[first : first + episode.length]
        (reset,) = await session.reset([seed])
        assert not reset.solved
        np.testing.assert_allclose(reset.observation.state_S, dataset.states_NS()[first], atol=1e-5)
        for start in range(0, episode.length, chunk):
            (result,) = await session.step(actions_NA[None, start : start + chunk])
            assert result is not None
            assert result.ended == result.success == (start + chunk >= episode.length)
        first += episode.length


async def test_replaying_a_recorded_demonstration_of_pusht_open_loop_succeeds(tmp_path: Path) -> None:
    out = tmp_path / "pusht"
    assert record(f"--env {PUSHT} --episodes 1 --out {out} --cameras top --size 32 --seed 40".split()) == 0
    async with pool_of() as pool, await pool.open(wanted(PUSHT, cameras=("top",))) as session:
        await replay(session, out, chunk=8)


@pytest.mark.simulator
@pytest.mark.parametrize("env_id", ["PushCube-v1", "PickCube-v1"])
async def test_replaying_a_recorded_demonstration_of_maniskill_open_loop_succeeds(tmp_path: Path, env_id: str) -> None:
    out = tmp_path / "recorded"
    status = record(f"--env {env_id} --episodes 1 --out {out} --cameras base --size 32 --seed 100".split())
    if status == SIMULATOR_MISSING:
        pytest.skip("Vulkan device missing: the record command could not start ManiSkill")
    assert status == 0
    async with pool_of() as pool, await pool.open(wanted(env_id, cameras=("base",))) as session:
        await replay(session, out, chunk=4)


@pytest.mark.simulator
async def test_a_second_session_of_maniskill_finds_it_warm_and_sees_the_same_start() -> None:
    async with pool_of() as pool:
        pids, pictures, opened_s = [], [], []
        for _ in range(2):
            begun_s = time.monotonic()
            try:
                session = await pool.open(wanted("PushCube-v1", cameras=("base",)))
            except SimulatorMissing as error:
                pytest.skip(f"Vulkan device missing: {error}")
            opened_s.append(time.monotonic() - begun_s)
            (reset,) = await session.reset([11])
            pids.append(session.processes[0].pid)
            pictures.append(reset.observation.images[0])
            await session.step(np.zeros((1, 2, 4), np.float32))
            await session.close()
        assert pids[0] == pids[1]
        assert np.array_equal(pictures[0], pictures[1])
        assert pictures[0].std() > 10
        assert opened_s[1] < opened_s[0] / 10
