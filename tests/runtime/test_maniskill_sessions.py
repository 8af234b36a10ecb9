"""Sessions of several ManiSkill worlds: in processes on the CPU, and in one simulation on a GPU, by the same tests.

PhysX turns its GPU on before all else or never, so no world is built in the process of these tests.
Shapes: B seats of a session, C actions of a chunk.
"""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import numpy as np
import pytest
import torch

from gpu_runtime.environments.base import EnvironmentKind, StateKind
from gpu_runtime.environments.errors import SimulatorMissing
from gpu_runtime.environments.results import ChunkResult
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.environments.slot import TryRules
from tests.support.environments import pool_of

pytestmark = pytest.mark.simulator
PUSH = EnvironmentKind(env_id="PushCube-v1", size=32, state=StateKind.PRIVILEGED, cameras=())
PICK = EnvironmentKind(env_id="PickCube-v1", size=32, state=StateKind.PRIVILEGED, cameras=("hand",))
ON_CUDA = pytest.param(
    "cuda",
    8,
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA device missing: worlds on a GPU were not run"),
    ],
)
everywhere = pytest.mark.parametrize(("device", "seats"), [("cpu", 3), ON_CUDA])


@contextlib.asynccontextmanager
async def session_of(
    device: str, seats: int, kind: EnvironmentKind = PUSH, steps_max: int | None = None
) -> AsyncIterator[EnvironmentSession]:
    """On a GPU all worlds must be in one process."""
    spec = SessionSpec(tenant_id="alice", kind=kind, seats=seats, rules=TryRules(steps_max=steps_max))
    async with pool_of(device=device, seats_per_process=2) as pool:
        try:
            session = await pool.open(spec)
        except SimulatorMissing as error:
            pytest.skip(f"Vulkan device missing: {error}")
        async with session:
            assert [process.vector_device for process in session.processes] == (
                ["cuda"] if device == "cuda" else [None] * -(-seats // 2)
            )
            yield session


def some_actions(seats: int, steps: int, seed: int = 0) -> np.ndarray:
    """Different ones for every seat, in free space: away from the cube, [B, C, 4]."""
    actions_BCA = np.random.default_rng(seed).uniform(-0.3, 0.3, (seats, steps, 4)).astype(np.float32)
    actions_BCA[..., 2] = np.abs(actions_BCA[..., 2])
    return actions_BCA


def states_of(results: list[ChunkResult | None], slots: list[int]) -> np.ndarray:
    """The states of ``slots``, which were active, [len(slots), S]."""
    answered = [result for result in (results[slot] for slot in slots) if result is not None]
    assert len(answered) == len(slots)
    return np.stack([result.observation.state_S for result in answered])


async def steps_taken(device: str, seats: int, part: np.ndarray | None, again: dict[int, int]) -> np.ndarray:
    """States [B, S] after three chunks: the first of all, one of ``part`` alone, new tries ``again``, one of all."""
    actions_BCA = some_actions(seats, 9)
    async with session_of(device, seats) as session:
        await session.reset(range(seats))
        await session.step(actions_BCA[:, :3])
        if part is not None:
            await session.step(actions_BCA[:, 3:6], part)
        await session.reset_some(again)
        return states_of(await session.step(actions_BCA[:, 6:]), list(range(seats)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA device missing: worlds on a GPU were not run")
@pytest.mark.parametrize("kind", [dataclasses.replace(PUSH, cameras=None), PICK], ids=["push", "pick"])
async def test_every_world_on_a_gpu_starts_and_looks_as_the_cpus_of_its_seed(kind: EnvironmentKind) -> None:
    starts = []
    for device in ("cpu", "cuda"):
        async with session_of(device, 8, kind) as session:
            starts.append(await session.reset(range(100, 108)))
    for on_cpu, on_gpu in zip(*starts, strict=True):
        np.testing.assert_allclose(on_gpu.observation.state_S, on_cpu.observation.state_S, atol=1e-3)
        assert on_gpu.solved == on_cpu.solved
        difference = on_gpu.observation.images[0].astype(int) - on_cpu.observation.images[0]
        assert np.abs(difference).mean() < 3


@everywhere
async def test_a_seed_starts_the_same_try_in_any_world_and_beside_any_other(device: str, seats: int) -> None:
    async with session_of(device, seats) as session:
        together = await session.reset(range(seats))
        turned = await session.reset(range(seats - 1, -1, -1))
        alone = await session.reset_some({1: 0})
    assert len({reset.initial_state for reset in together}) == seats
    for first, second in zip(together, reversed(turned), strict=True):
        np.testing.assert_allclose(second.observation.state_S, first.observation.state_S, atol=1e-5)
    np.testing.assert_allclose(alone[1].observation.state_S, together[0].observation.state_S, atol=1e-5)


@everywhere
async def test_new_tries_in_some_worlds_leave_those_of_the_others_alone(device: str, seats: int) -> None:
    usual = await steps_taken(device, seats, None, {})
    disturbed = await steps_taken(device, seats, None, {1: 500})
    others = [slot for slot in range(seats) if slot != 1]
    np.testing.assert_allclose(disturbed[others], usual[others], atol=1e-3)
    assert np.abs(disturbed[1] - usual[1]).max() > 0.01


@everywhere
async def test_worlds_that_rest_go_on_as_if_the_others_had_not_moved(device: str, seats: int) -> None:
    moving = np.arange(seats) % 2 == 0
    usual = await steps_taken(device, seats, None, {})
    rested = await steps_taken(device, seats, moving, {})
    np.testing.assert_allclose(rested[~moving], usual[~moving], atol=1e-3)
    assert np.abs(rested[moving] - usual[moving]).max(axis=1).min() > 1e-3


@everywhere
async def test_each_world_runs_out_of_its_own_time(device: str, seats: int) -> None:
    actions_BCA = some_actions(seats, 5)
    async with session_of(device, seats, steps_max=7) as session:
        await session.reset(range(seats))
        assert [result is not None and result.executed for result in await session.step(actions_BCA)] == [5] * seats
        await session.reset_some({0: 9})
        later = await session.step(actions_BCA)
    assert [result is not None and result.executed for result in later] == [5] + [2] * (seats - 1)
    assert [result is not None and result.truncated for result in later] == [False] + [True] * (seats - 1)
    for result in later[1:]:
        assert result is not None
        assert result.final_observation is result.observation
