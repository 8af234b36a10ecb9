"""Environments of gymnasium by declaration: a goal world of Fetch's form, and one that gymnasium brings."""

import dataclasses
import importlib.util

import numpy as np
import pytest

from gpu_runtime.environments import gymnasium as family
from gpu_runtime.environments.base import StateKind
from gpu_runtime.environments.errors import (
    SimulatorError,
    SimulatorMissing,
    UnknownCamera,
    UnknownEnvironment,
    UnknownOption,
    WrongAction,
)
from gpu_runtime.environments.gymnasium_tasks import TASKS, GymnasiumTask
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.environments.slot import Slot, TryRules
from gpu_runtime.protocol.schema import ActionRepresentation
from tests.support.goal_world import TASK

GOAL = "gymnasium/GoalWorld-v0"
CAR = GymnasiumTask(
    package="gymnasium",
    instruction="Drive the car up the hill.",
    observation=("position", "speed"),
    proprioception=("position", "speed"),
    action=("force",),
    representation=ActionRepresentation.UNDECLARED,
    control_hz=30.0,
    robot_type="car",
)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(TASK, observation=TASK.observation[:5], proprioception=TASK.observation[:3])
    wrong = dataclasses.replace(TASK, action=TASK.action[:2])
    tasks = {"GoalWorld-v0": TASK, "MountainCarContinuous-v0": CAR}
    monkeypatch.setattr(family, "TASKS", {**TASKS, **tasks, "Small": small, "Wrong": wrong})


def test_only_declared_ids_cameras_and_states_are_allowed() -> None:
    with pytest.raises(UnknownEnvironment, match=r"nobody declared gymnasium's 'CartPole-v1'; allowed: FetchReach-v4"):
        make_environment("gymnasium/CartPole-v1")
    with pytest.raises(UnknownCamera, match="no camera 'hand'; allowed: scene"):
        make_environment(GOAL, cameras=["hand"])
    with pytest.raises(UnknownOption, match="no 'privileged'; allowed: proprioception, full"):
        make_environment(GOAL, state=StateKind.PRIVILEGED)


@pytest.mark.parametrize("name", ["FetchReach-v4", "FetchPush-v4"])
def test_a_declaration_names_every_dimension_once_and_only_known_ones(name: str) -> None:
    task = TASKS[name]
    assert len(set(task.observation)) == len(task.observation) == {"FetchReach-v4": 13, "FetchPush-v4": 28}[name]
    assert set(task.proprioception) <= set(task.observation)
    assert not any("object" in dimension for dimension in task.proprioception)


@pytest.mark.parametrize("name", ["FetchReach-v4", "FetchPush-v4"])
def test_fetch_is_as_declared_where_it_is_installed_and_else_refused_with_the_missing_package(name: str) -> None:
    if importlib.util.find_spec("gymnasium_robotics") is None:
        with pytest.raises(SimulatorMissing, match="needs the Python package 'gymnasium_robotics'"):
            make_environment(f"gymnasium/{name}")
        return
    environment = make_environment(f"gymnasium/{name}", size=32)
    assert environment.reset(0).state_S.shape == (len(TASKS[name].proprioception),)
    assert not environment.step(np.zeros(4, np.float32)).terminated
    environment.close()


@pytest.mark.parametrize(
    ("name", "words"), [("Small", "tells 6 numbers; declared are 5"), ("Wrong", "declared are 2 numbers")]
)
def test_a_declaration_that_does_not_fit_is_refused(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(family.TASKS, "GoalWorld-v0", family.TASKS[name])  # type: ignore[index]
    with pytest.raises(SimulatorError, match=words):
        make_environment(GOAL)


def test_the_state_is_the_declared_part_of_what_the_environment_tells() -> None:
    plain, full = make_environment(GOAL), make_environment(GOAL, state=StateKind.FULL)
    assert plain.schema().state is not None
    assert plain.schema().state.names == ("point_x", "point_y", "point_z")
    state, whole = plain.reset(3).state_S, full.reset(3).state_S
    assert (state.shape, whole.shape) == ((3,), (6,))
    np.testing.assert_allclose(whole[3:], full.privileged()["goal_x"].tolist() + whole[4:].tolist(), rtol=1e-6)
    assert not np.array_equal(full.reset(4).state_S, whole)


def test_success_once_and_at_the_end_differ_where_success_ends_nothing() -> None:
    environment = make_environment(GOAL, size=16)
    slot = Slot(environment, environment.schema())
    assert slot.reset(3)["solved"] is False
    goal = np.concatenate([environment.privileged()[f"goal_{axis}"] for axis in "xyz"])
    towards = np.tile(goal / 0.5, (5, 1)).astype(np.float32)
    answer = slot.step(np.concatenate([towards, np.ones((5, 3), np.float32)]))
    assert (answer["executed"], answer["terminated"], answer["truncated"]) == (8, False, True)
    assert (answer["success_once"], answer["success"]) == (True, False)
    np.testing.assert_array_equal(answer["rewards"][:8] == 0, [False] * 4 + [True] + [False] * 3)
    slot.rules = TryRules(steps_max=3)
    slot.reset(3)
    assert slot.step(towards)["executed"] == 3


def test_a_start_at_the_goal_is_recognised() -> None:
    environment = make_environment(GOAL)
    environment.reset(13)
    assert environment.succeeded()
    environment.reset(3)
    assert not environment.succeeded()


def test_pictures_have_the_size_asked_for_and_restoring_is_refused() -> None:
    environment = make_environment(GOAL, size=16)
    environment.reset(0)
    image = environment.render()["observation.images.scene"]
    assert (image.shape, image.dtype) == ((16, 16, 3), np.uint8)
    assert image[8, 2].tolist() == [200, 10, 10]
    with pytest.raises(SimulatorError, match="cannot be put back"):
        environment.restore(environment.snapshot())
    with pytest.raises(WrongAction, match="delta_x"):
        environment.step(np.zeros(4))


def test_an_environment_that_gymnasium_brings_runs_by_declaration_alone() -> None:
    environment = make_environment("gymnasium/MountainCarContinuous-v0", size=32)
    assert np.array_equal(environment.reset(5).state_S, environment.reset(5).state_S)
    speeds = [environment.step(np.array([9.0])).observation.state_S[1] for _ in range(3)]
    assert speeds[0] < speeds[1] < speeds[2]
    assert environment.render()["observation.images.scene"].std() > 10
    environment.close()
