"""Environments of gymnasium by declaration: a goal world of Fetch's form, and one that gymnasium brings."""

import dataclasses
import gc
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.recorder import Recorder
from gpu_runtime.environments import gymnasium as family
from gpu_runtime.environments.base import Environment, StateKind
from gpu_runtime.environments.demonstrations import NotRepeatable, Outcome, demonstrate, film
from gpu_runtime.environments.errors import (
    SimulatorError,
    SimulatorMissing,
    UnknownCamera,
    UnknownEnvironment,
    UnknownOption,
    WrongAction,
)
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.gymnasium_tasks import TASKS, GymnasiumTask
from gpu_runtime.environments.record import main as record
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.environments.slot import Slot, TryRules
from gpu_runtime.protocol.schema import ActionRepresentation
from tests.support.goal_world import TASK

GOAL, REACH = "gymnasium/GoalWorld-v0", "gymnasium/FetchReach-v4"
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


@pytest.mark.parametrize("name", ["FetchReach-v4", "FetchPush-v4", "FetchReachDense-v4", "FetchPushDense-v4"])
def test_a_declaration_names_every_dimension_once_and_only_known_ones(name: str) -> None:
    task = TASKS[name]
    assert len(set(task.observation)) == len(task.observation) == (13 if "Reach" in name else 28)
    assert set(task.proprioception) <= set(task.observation)
    assert set(task.privileged) <= {*task.observation, *task.ways}
    assert not any("object" in dimension for dimension in task.proprioception)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(SimulatorMissing, match="FetchReach-v4 needs the Python package 'gymnasium_robotics'"):
        make_environment(REACH)


@pytest.mark.parametrize("name", ["FetchReach-v4", "FetchPush-v4", "FetchPushDense-v4"])
@pytest.mark.parametrize("state", list(StateKind))
def test_fetch_is_as_declared(name: str, state: StateKind) -> None:
    environment = make_environment(f"gymnasium/{name}", cameras=(), state=state)
    names = environment.schema().state.names  # type: ignore[union-attr]
    values = dict(zip(names, environment.reset(0).state_S.tolist(), strict=True))
    for start, to in (("gripper", "goal"), ("object", "goal"), ("gripper", "object")):
        if f"{start}_to_{to}_x" in values and f"{start}_x" in values and f"{to}_x" in values:
            expected = values[f"{to}_x"] - values[f"{start}_x"]
            assert values[f"{start}_to_{to}_x"] == pytest.approx(expected, abs=1e-6)
    result = environment.step(np.zeros(4, np.float32))
    assert (result.terminated, result.truncated, environment.max_steps) == (False, False, 50)
    environment.close()


@pytest.fixture(scope="module")
def fetch_reach() -> Iterator[Environment]:
    environment = make_environment(REACH, size=64, state=StateKind.PRIVILEGED)
    yield environment
    environment.close()


def test_fetch_reach_starts_where_the_seed_says_whatever_was_played_before(fetch_reach: Environment) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (10, 4)).astype(np.float32)

    def played() -> list[tuple[float, ...]]:
        start = fetch_reach.reset(7).state_S
        results = [fetch_reach.step(action) for action in actions]
        return [tuple(start), *((*result.observation.state_S, result.reward) for result in results)]

    first = played()
    fetch_reach.reset(8)
    fetch_reach.step(np.ones(4, np.float32))
    assert played() == first
    starts = {tuple(fetch_reach.reset(seed).state_S.round(5)) for seed in range(50)}
    assert len(starts) == 50


def test_the_fetch_expert_reaches_every_goal_and_stays_there(fetch_reach: Environment) -> None:
    expert = expert_for(REACH)
    outcomes = [demonstrate(fetch_reach, expert, seed)[0] for seed in range(9000, 9040)]
    assert outcomes.count(Outcome.FAILED) == 0
    assert outcomes.count(Outcome.SOLVED) >= 30
    fetch_reach.reset(9001)
    results = [fetch_reach.step(expert(fetch_reach.privileged())) for _ in range(50)]
    assert results[-1].success
    assert results[-1].truncated


def test_a_start_at_the_goal_is_recognised_with_either_reward() -> None:
    lucky = {}
    for name in ("FetchReach-v4", "FetchReachDense-v4"):
        environment = make_environment(f"gymnasium/{name}", cameras=())
        lucky[name] = [seed for seed in range(60) if environment.reset(seed) and environment.succeeded()]
        environment.close()
    assert lucky["FetchReach-v4"] == lucky["FetchReachDense-v4"] == [48, 52]


def test_the_goal_is_in_the_picture(fetch_reach: Environment) -> None:
    """Red only at the goal: where it is seen moves with it."""

    def red_columns(seed: int) -> float:
        fetch_reach.reset(seed)
        image = fetch_reach.render()["observation.images.scene"].astype(int)
        red = (image[..., 0] > 120) & (image[..., 1] < 80) & (image[..., 2] < 80)
        assert red.any()
        return float(np.nonzero(red)[1].mean())

    sides = {}
    for seed in (1, 2, 3, 4, 5, 6):
        sides[seed] = red_columns(seed)
    goals_y = [float(fetch_reach.privileged()["goal_y"][0]) for seed in sides if fetch_reach.reset(seed)]
    assert np.corrcoef(list(sides.values()), goals_y)[0, 1] > 0.95


def test_environments_of_one_process_draw_their_own_pictures(fetch_reach: Environment) -> None:
    other = make_environment(REACH, size=64, state=StateKind.PRIVILEGED)
    pictures = {}
    for environment, seed in ((fetch_reach, 1), (other, 2), (fetch_reach, 1), (other, 2)):
        environment.reset(seed)
        seen = environment.render()["observation.images.scene"]
        assert np.array_equal(pictures.setdefault(seed, seen), seen)
        assert seen.std() > 10
    assert not np.array_equal(pictures[1], pictures[2])
    other.close()
    del other, environment
    gc.collect()
    assert np.array_equal(fetch_reach.render()["observation.images.scene"], pictures[1])


def test_a_recording_of_fetch_replays_to_success_and_shows_what_was_there(
    tmp_path: Path, fetch_reach: Environment
) -> None:
    asked = f"--env {REACH} --episodes 3 --state privileged --seed 200 --out {tmp_path / 'reach'}"
    assert record(asked.split()) == 0
    dataset = LeRobotDataset.open(tmp_path / "reach")
    assert dataset.schema.signature == fetch_reach.schema().signature
    for index, seed in enumerate(json.loads((tmp_path / "reach/meta/recording.json").read_text())["seeds"]):
        rows = dataset.rows(index)
        np.testing.assert_allclose(fetch_reach.reset(seed).state_S, dataset.states_NS()[rows][0], atol=1e-6)  # type: ignore[index]
        live, results = [], []
        for action in dataset.actions_NA()[rows]:
            live.append(fetch_reach.render()["observation.images.scene"])
            results.append(fetch_reach.step(action))
        assert [result.success for result in results] == [False] * (len(results) - 1) + [True]
        kept = dataset.frames(index, [0, len(live) - 1], "observation.images.scene")
        for stored, seen in zip(kept, (live[0], live[-1]), strict=True):
            assert np.abs(stored.astype(int) - seen).mean() < 4  # colour at half resolution


def test_a_world_that_does_not_repeat_itself_is_not_filmed(tmp_path: Path) -> None:
    environment = make_environment(GOAL, size=16)

    def towards(scene: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.array([2 * scene[f"goal_{axis}"][0] for axis in "xyz"], np.float32)

    outcome, kept = demonstrate(environment, towards, 3)
    assert outcome is Outcome.SOLVED
    assert kept is not None
    elsewhere = dataclasses.replace(kept, states_NS=kept.states_NS + np.float32(0.1))
    with Recorder(tmp_path / "kept", environment.schema(), 10) as recorder:
        film(environment, kept, recorder, lambda: None)
        with pytest.raises(NotRepeatable, match="seed 3: the same actions lead elsewhere at frame 0"):
            film(environment, elsewhere, recorder, lambda: None)
        recorder.add(
            {"observation.images.scene": np.zeros((16, 16, 3), np.uint8)}, kept.states_NS[0], kept.actions_NA[0]
        )
        film(environment, kept, recorder, lambda: None)


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
