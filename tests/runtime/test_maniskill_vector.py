"""The module for many ManiSkill worlds in one simulation: with one world on the CPU it is the single environment.

Many worlds at once need a GPU: ``test_maniskill_sessions``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from gpu_runtime.environments.base import EnvironmentKind, StateKind
from gpu_runtime.environments.demonstrations import demonstrate
from gpu_runtime.environments.errors import SimulatorMissing, UnknownCamera
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.maniskill import ManiSkillEnvironment
from gpu_runtime.environments.maniskill import make as make_single
from gpu_runtime.environments.maniskill_draws import DrawOnCpu
from gpu_runtime.environments.maniskill_tasks import ALIKE
from gpu_runtime.environments.maniskill_vector import ManiSkillWorlds, make_vector
from gpu_runtime.environments.results import read_chunk, read_reset
from gpu_runtime.environments.slot import Slot, TryRules
from gpu_runtime.environments.vector_slot import VectorSlots

pytestmark = pytest.mark.simulator
ACTIVE, RESTING = np.array([True]), np.array([False])
PUSH = EnvironmentKind(env_id="PushCube-v1", size=32, state=StateKind.PRIVILEGED)
PICK = EnvironmentKind(env_id="PickCube-v1", size=32, state=StateKind.PRIVILEGED, cameras=("hand",))
Both = tuple[ManiSkillEnvironment, ManiSkillWorlds]


@pytest.fixture(scope="module", params=[PUSH, PICK], ids=lambda kind: str(kind.env_id))
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    try:
        single = make_single(request.param)
    except SimulatorMissing as error:
        pytest.skip(f"Vulkan device missing: {error}")
    worlds = make_vector(request.param, 1, "cpu")
    yield single, worlds
    single.close()
    worlds.close()


def random_actions(environment: ManiSkillEnvironment | ManiSkillWorlds, steps: int, seed: int = 0) -> np.ndarray:
    """Small ones, [steps, A]."""
    shape = (steps, environment.schema().action.dim)
    return np.random.default_rng(seed).uniform(-0.3, 0.3, shape).astype(np.float32)


def test_one_world_has_the_schema_the_starts_the_steps_and_the_pictures_of_the_single_environment(both: Both) -> None:
    single, worlds = both
    assert worlds.schema() == single.schema()
    assert (worlds.max_steps, worlds.instruction) == (single.max_steps, single.instruction)
    keys = [camera.key for camera in single.schema().cameras]
    for seed in (3, 8, 3):  # PickCube's 8 is solved at its reset
        assert np.array_equal(worlds.reset({0: seed})[0].state_S, single.reset(seed).state_S)
        assert np.array_equal(worlds.snapshots()[0], single.snapshot())
        assert worlds.succeeded().tolist() == [single.succeeded()]
        for action_A in random_actions(single, 6, seed):
            expected, result = single.step(action_A), worlds.step(action_A[None], ACTIVE)[0]
            assert np.array_equal(result.observation.state_S, expected.observation.state_S)
            assert (result.reward, result.terminated) == (expected.reward, expected.terminated)
            assert (result.truncated, result.success) == (expected.truncated, expected.success)
        for key, picture in worlds.render([0], keys).items():
            assert np.array_equal(picture[0], single.render()[key])
            assert picture.std() > 10
    with pytest.raises(UnknownCamera, match="no camera"):
        worlds.render([0], ["observation.images.elbow"])


def test_an_experts_try_succeeds_in_the_step_in_which_it_does_in_the_single_environment(both: Both) -> None:
    single, worlds = both
    _, kept = demonstrate(single, expert_for(single.env_id), 42)
    assert kept is not None
    worlds.reset({0: 42})
    results = [worlds.step(action_A[None], ACTIVE)[0] for action_A in kept.actions_NA]
    assert [result.success for result in results] == [False] * (len(results) - 1) + [True]
    assert results[-1].terminated


def test_a_world_that_rests_is_put_back_and_goes_on_as_if_the_others_had_not_moved(both: Both) -> None:
    single, worlds = both
    actions_NA = random_actions(single, 6)
    single.reset(3)
    expected = [single.step(action_A) for action_A in actions_NA]
    worlds.reset({0: 3})
    results = []
    for action_A in actions_NA:
        before, flags = worlds.snapshots(), worlds.succeeded()
        steps = worlds._world.elapsed_steps.tolist()
        for _ in range(2):
            assert worlds.step(np.ones_like(action_A)[None], RESTING) == {}
        np.testing.assert_allclose(worlds.snapshots(), before, atol=1e-6)
        assert worlds.succeeded().tolist() == flags.tolist()
        assert worlds._world.elapsed_steps.tolist() == steps
        results.append(worlds.step(action_A[None], ACTIVE)[0])
    for result, one in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.observation.state_S, one.observation.state_S, atol=1e-4)
        assert result.reward == pytest.approx(one.reward, abs=1e-4)
    assert np.abs(results[-1].observation.state_S - results[0].observation.state_S).max() > 0.01, "it moved"


@pytest.mark.parametrize("rules", [TryRules(steps_max=9), TryRules(ends_on_termination=False, steps_max=9)])
def test_chunks_of_one_world_are_answered_as_those_of_a_slot(both: Both, rules: TryRules) -> None:
    """But for how PhysX solves contacts, which depends on what each of the two worlds played before."""
    single, worlds = both
    schema = single.schema()
    slot, slots = Slot(single, schema), VectorSlots(worlds, schema)
    slot.rules = slots.rules = rules
    expected = read_reset(slot.reset(3), schema)
    started = read_reset(slots.reset([(0, 3)])[0], schema)
    assert (started.initial_state, started.solved) == (expected.initial_state, expected.solved)
    assert np.array_equal(started.observation.images[0], expected.observation.images[0])
    ends = []
    for first in (0, 6):
        actions_CA = random_actions(single, 12)[first : first + 6]
        one = read_chunk(slot.step(actions_CA), schema, 6)
        (answer,) = slots.step([0], actions_CA[None])
        result = read_chunk(answer, schema, 6)
        np.testing.assert_allclose(result.rewards_C, one.rewards_C, atol=1e-5)
        np.testing.assert_allclose(result.observation.state_S, one.observation.state_S, atol=1e-4)
        assert np.abs(result.observation.images[0].astype(int) - one.observation.images[0]).mean() < 0.05
        ends.append((result.executed, result.terminated, result.truncated, result.success_once, result.success_step))
        assert ends[-1] == (one.executed, one.terminated, one.truncated, one.success_once, one.success_step)
    assert ends == [(6, False, False, False, 0), (3, False, True, False, 0)]


@pytest.mark.parametrize("named", [True, False], ids=["device named", "usual device"])
@pytest.mark.parametrize(
    "draw",
    [lambda **to: torch.rand((2, 3), **to), lambda **to: torch.randint(0, 9, (2, 3), **to)],
    ids=["rand", "int"],
)
def test_random_numbers_for_any_device_are_those_of_the_cpu(draw, named: bool) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(5)
    draw()
    second = draw()
    torch.manual_seed(5)
    with DrawOnCpu(), torch.device("cpu" if named else "meta"):
        drawn = draw(device="meta") if named else draw()
        assert torch.zeros(1).device.type == ("cpu" if named else "meta")
    assert drawn.device.type == "meta"
    assert torch.equal(draw(), second), "the first numbers of the CPU's generator were taken"


def starts_alike_however_it_is_built(env_id: str) -> tuple[bool, set[Any]]:
    """Whether one seed starts the same try in worlds that were built by two others; and what torch did meanwhile."""
    try:
        environment = make_single(EnvironmentKind(env_id=env_id, cameras=(), state=StateKind.FULL))
    except SimulatorMissing as error:
        pytest.skip(f"Vulkan device missing: {error}")
    called: set[Any] = set()
    world: Any = environment._world
    world.reconfiguration_freq = 0  # many worlds are never built anew at a reset

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.add(function)
            return function(*args, **(kwargs or {}))

    states = []
    for built_by in (1, 2):
        environment._env.reset(seed=built_by, options={"reconfigure": True})
        again = environment._read_by()
        with Watch():
            environment.reset(3)
        states.append(again.read())
    environment.close()
    return np.array_equal(states[0], states[1]), called


@pytest.mark.parametrize("env_id", ALIKE)
def test_worlds_of_a_task_that_shares_a_process_are_alike_and_draw_by_what_is_redirected_only(env_id: str) -> None:
    alike, called = starts_alike_however_it_is_built(env_id)
    assert alike
    assert torch.rand in called
    assert not called & {torch.normal, torch.rand_like, torch.randn_like, torch.bernoulli, torch.multinomial}
    assert not called & {torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.bernoulli_}


def test_a_task_whose_worlds_are_built_by_a_seed_is_recognised() -> None:
    alike, _ = starts_alike_however_it_is_built("PegInsertionSide-v1")
    assert not alike
    assert "PegInsertionSide-v1" not in ALIKE
