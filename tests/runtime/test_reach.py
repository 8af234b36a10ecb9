"""The built-in reach environment: what it rewards, how a try ends, what its camera shows."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.environments.adapters import adapter_between
from gpu_runtime.environments.base import Environment
from gpu_runtime.environments.demonstrations import Outcome, demonstrate
from gpu_runtime.environments.errors import UnknownCamera, UnknownEnvironment, WrongAction
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.reach import MAX_STEPS
from gpu_runtime.environments.record import main as record
from gpu_runtime.environments.registry import make_environment

REACH = "joynexus/Reach-v0"
TOP = "observation.images.top"


@pytest.fixture
def reach() -> Environment:
    return make_environment(REACH, size=32)


def test_unknown_ids_and_cameras_are_refused() -> None:
    with pytest.raises(UnknownEnvironment, match=r"Reach-v7.*allowed: joynexus/Reach-v0"):
        make_environment("joynexus/Reach-v7")
    with pytest.raises(UnknownCamera, match="no camera 'hand'; allowed: top"):
        make_environment(REACH, cameras=["hand"])


def test_the_state_is_the_position_and_the_way_to_the_goal(reach: Environment) -> None:
    state = reach.reset(3).state_S
    scene = reach.privileged()
    assert state.dtype == np.float32
    np.testing.assert_allclose(state, [*scene["position"], *(scene["goal"] - scene["position"])], atol=1e-6)


def test_a_step_moves_by_a_tenth_of_the_clipped_velocity_and_costs_a_tenth_of_the_distance(reach: Environment) -> None:
    before = reach.reset(3).state_S
    result = reach.step(np.array([-5.0, 0.5]))
    np.testing.assert_allclose(result.observation.state_S[:2] - before[:2], [-0.1, 0.05], atol=1e-6)
    assert result.reward == pytest.approx(-0.1 * np.hypot(*result.observation.state_S[2:]), abs=1e-6)


def test_reaching_the_goal_pays_one_and_terminates(reach: Environment) -> None:
    reach.reset(5)
    expert, results = expert_for(REACH), []
    while not results or not results[-1].terminated:
        results.append(reach.step(expert(reach.privileged())))
    assert len(results) <= 16
    assert results[-1].success
    assert results[-1].reward == pytest.approx(1 - 0.1 * np.hypot(*results[-1].observation.state_S[2:]), abs=1e-6)
    assert not any(result.success or result.truncated for result in results[:-1])


def test_standing_still_is_cut_off_after_twenty_steps(reach: Environment) -> None:
    reach.reset(5)
    results = [reach.step(np.zeros(2)) for _ in range(MAX_STEPS)]
    assert [result.truncated for result in results] == [False] * 19 + [True]
    assert not any(result.terminated or result.success for result in results)


def test_the_expert_solves_every_seed_and_chance_hardly_any(reach: Environment) -> None:
    outcomes = [demonstrate(reach, expert_for(REACH), seed)[0] for seed in range(200)]
    assert Outcome.FAILED not in outcomes
    random, solved = np.random.default_rng(0), 0
    for seed in range(200):
        reach.reset(seed)
        solved += any(reach.step(random.normal(0, 0.6, 2)).success for _ in range(MAX_STEPS))
    assert solved <= 20


def test_a_restored_snapshot_goes_on_as_before(reach: Environment) -> None:
    reach.reset(1)
    reach.step(np.array([1.0, -1.0]))
    kept = reach.snapshot()
    first = reach.step(np.array([0.3, 0.2]))
    reach.reset(2)
    reach.restore(kept)
    again = reach.step(np.array([0.3, 0.2]))
    assert np.array_equal(first.observation.state_S, again.observation.state_S)
    assert first.reward == again.reward


def test_the_camera_shows_the_dot_where_it_is(reach: Environment) -> None:
    def red_columns() -> np.ndarray:
        image = reach.render()[TOP]
        assert (image.shape, image.dtype) == ((32, 32, 3), np.uint8)
        return np.flatnonzero((image[..., 0] > 200).any(axis=0))

    reach.reset(1)
    before = red_columns()
    reach.step(np.array([1.0, 0.0]))
    assert red_columns().mean() > before.mean()


def test_a_wrong_action_is_refused(reach: Environment) -> None:
    with pytest.raises(WrongAction, match="velocity_x"):
        reach.step(np.zeros(3))


def test_a_recording_replayed_open_loop_solves_the_task_at_its_last_action(tmp_path: Path, reach: Environment) -> None:
    assert record(f"--env {REACH} --episodes 5 --cameras none --out {tmp_path / 'reach'}".split()) == 0
    dataset = LeRobotDataset.open(tmp_path / "reach")
    adapter = adapter_between(dataset.schema, reach.schema())
    for index, seed in enumerate(json.loads((tmp_path / "reach/meta/recording.json").read_text())["seeds"]):
        reach.reset(seed)
        results = [reach.step(action) for action in adapter(dataset.actions_NA()[dataset.rows(index)])]
        assert [result.success for result in results] == [False] * (len(results) - 1) + [True]
