"""ManiSkill on a software Vulkan device: experts, replay, cameras on demand."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.environments.adapters import adapter_between
from gpu_runtime.environments.base import IMAGE_PREFIX, Environment, StateKind
from gpu_runtime.environments.demonstrations import Outcome, demonstrate
from gpu_runtime.environments.errors import SimulatorMissing, UnknownCamera, UnknownEnvironment, UnknownOption
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.record import main
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.protocol.schema import ActionRepresentation, Gripper, GripperConvention

pytestmark = pytest.mark.simulator
SIZE = 32


def made(env_id: str, **options: object) -> Environment:
    try:
        return make_environment(env_id, size=SIZE, **options)
    except SimulatorMissing as error:
        if "Vulkan" in str(error):
            pytest.skip(f"Vulkan device missing: {error}")
        raise


@pytest.fixture(scope="module")
def push_cube() -> Iterator[Environment]:
    environment = made("PushCube-v1")
    yield environment
    environment.close()


@pytest.fixture(scope="module")
def pick_cube() -> Iterator[Environment]:
    environment = made("PickCube-v1")
    yield environment
    environment.close()


def test_schemas_of_the_two_tasks_differ_in_cameras_state_and_action(
    push_cube: Environment, pick_cube: Environment
) -> None:
    push, pick = push_cube.schema(), pick_cube.schema()
    assert [camera.key for camera in push.cameras] == ["observation.images.base"]
    assert [camera.key for camera in pick.cameras] == ["observation.images.base", "observation.images.hand"]
    assert push.state is not None
    assert pick.state is not None
    assert (push.state.dim, pick.state.dim) == (12, 15)
    assert pick.state.names[-6:] == ("tcp_x", "tcp_y", "tcp_z", "goal_x", "goal_y", "goal_z")
    assert push.action.names == ("delta_x", "delta_y", "delta_z", "gripper")
    assert pick.action.names[3:] == ("rotation_x", "rotation_y", "rotation_z", "gripper")
    for schema in (push, pick):
        assert schema.representation is ActionRepresentation.DELTA_EE_SCALED
        assert schema.gripper is not None
        assert schema.gripper.index == schema.action.dim - 1
        assert schema.gripper.convention is GripperConvention.OPEN_POSITIVE
        assert schema.control_hz == 20


def test_the_declared_gripper_convention_is_the_robots(pick_cube: Environment) -> None:
    def width_after(command: float) -> float:
        pick_cube.reset(0)
        for _ in range(8):
            result = pick_cube.step(np.array([0, 0, 0.2, 0, 0, 0, command], np.float32))
        return float(result.observation.state_S[7])

    assert width_after(1.0) > 0.035
    assert width_after(-1.0) < 0.005


def test_the_state_is_joints_then_tool_then_goal(pick_cube: Environment) -> None:
    state = pick_cube.reset(11).state_S
    scene = pick_cube.privileged()
    np.testing.assert_allclose(state[9:12], scene["tcp"][:3], atol=1e-6)
    np.testing.assert_allclose(state[12:15], scene["goal"][:3], atol=1e-6)


@pytest.mark.parametrize("env_id", ["PushCube-v1", "PickCube-v1"])
def test_the_expert_solves_every_unseen_seed(env_id: str, push_cube: Environment, pick_cube: Environment) -> None:
    environment = push_cube if env_id == "PushCube-v1" else pick_cube
    outcomes = [demonstrate(environment, expert_for(env_id), seed)[0] for seed in range(9000, 9015)]
    assert Outcome.FAILED not in outcomes
    assert outcomes.count(Outcome.SOLVED) >= 13


def test_a_try_that_a_reset_already_solved_is_recognised(pick_cube: Environment) -> None:
    outcome, kept = demonstrate(pick_cube, expert_for("PickCube-v1"), 8)
    assert (outcome, kept) == (Outcome.SOLVED_AT_RESET, None)


@pytest.mark.parametrize("env_id", ["PushCube-v1", "PickCube-v1"])
def test_a_restored_snapshot_shows_the_picture_that_was_live(
    env_id: str, push_cube: Environment, pick_cube: Environment
) -> None:
    environment = push_cube if env_id == "PushCube-v1" else pick_cube
    expert = expert_for(env_id)
    environment.reset(21)
    kept = []
    for _ in range(8):
        kept.append((environment.snapshot(), environment.render()))
        environment.step(expert(environment.privileged()))
    environment.reset(22)
    environment.reset(21)
    for snapshot, images in reversed(kept):
        environment.restore(snapshot)
        np.testing.assert_allclose(environment.snapshot(), snapshot, atol=1e-6)
        for key, image in environment.render().items():
            assert np.abs(image.astype(int) - images[key].astype(int)).mean() < 0.05, key
    assert (
        np.abs(kept[0][1]["observation.images.base"].astype(int) - kept[-1][1]["observation.images.base"]).mean() > 1
    )


def test_the_goal_marker_is_in_no_picture(pick_cube: Environment) -> None:
    pick_cube.reset(3)
    snapshot, goal = pick_cube.snapshot(), pick_cube.privileged()["goal"]
    before = pick_cube.render()
    moved = snapshot.copy()
    place = [i for i in range(len(snapshot) - 2) if np.allclose(snapshot[i : i + 3], goal[:3], atol=1e-6)]
    assert len(place) == 1
    moved[place[0] : place[0] + 3] += [0.05, 0.05, -0.02]
    pick_cube.restore(moved)
    assert not np.allclose(pick_cube.privileged()["goal"], goal)
    for key, image in pick_cube.render().items():
        assert np.array_equal(image, before[key]), key


def test_unknown_ids_and_cameras_are_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownEnvironment, match=r"'PushCube-v7'.*PushCube-v1"):
        made("PushCube-v7")
    with pytest.raises(UnknownCamera, match="no camera 'hand2'; allowed: base"):
        made("PushCube-v1", cameras=["hand2"])


@pytest.mark.parametrize(
    ("env_id", "names"),
    [
        ("PickSingleYCB-v1", r"not installed: ycb \(python -m mani_skill.utils.download_asset ycb\)"),
        ("AnymalC-Spin-v1", "not installed: anymal_c"),
        ("OpenCabinetDoor-v1", "download_asset partnet_mobility_cabinet"),
        ("SceneManipulation-v1", "replica_cad"),
        ("DrawSVG-v1", "svgpathtools"),
    ],
)
def test_a_task_that_needs_a_download_is_refused_with_the_packs_name_instead_of_asking(
    env_id: str, names: str
) -> None:
    with pytest.raises(SimulatorMissing, match=names):
        made(env_id)


def starts_steps_and_shows(env_id: str) -> None:
    environment = made(env_id)
    schema = environment.schema()
    assert schema.state is not None
    assert len(set(schema.action.names)) == schema.action.dim
    assert len(set(schema.state.names)) == schema.state.dim
    assert environment.max_steps is not None
    assert np.array_equal(environment.reset(1).state_S, environment.reset(1).state_S)
    result = environment.step(np.zeros(schema.action.dim, np.float32))
    assert np.isfinite([*result.observation.state_S, result.reward]).all()
    for key, image in environment.render().items():
        assert (image.shape, image.dtype) == ((SIZE, SIZE, 3), np.uint8), key
        assert image.any(), key
    environment.close()


@pytest.mark.parametrize("env_id", ["PegInsertionSide-v1", "TwoRobotPickCube-v1", "MS-HopperStand-v1"])
def test_tasks_with_two_cameras_two_robots_and_other_names_run(env_id: str) -> None:
    starts_steps_and_shows(env_id)


# fmt: off
RUN_OFFLINE = (
    "DrawTriangle", "Empty", "FMBAssembly1Easy", "LiftPegUpright", "PegInsertionSide", "PickCube", "PickCubeSO100",
    "PlaceSphere", "PlugCharger", "PokeCube", "PullCube", "PullCubeTool", "PushCube", "PushT", "RollBall",
    "SO100GraspCube", "StackCube", "StackPyramid", "TableTopFreeDraw", "TwoRobotPickCube", "TwoRobotStackCube",
    "UnitreeG1PlaceAppleInBowl", "UnitreeG1Stand", "UnitreeG1TransportBox", "MS-AntRun", "MS-AntWalk",
    "MS-CartpoleBalance", "MS-CartpoleSwingUp", "MS-HopperHop", "MS-HopperStand", "MS-HumanoidRun",
    "MS-HumanoidStand", "MS-HumanoidWalk", "RotateSingleObjectInHandLevel0", "RotateSingleObjectInHandLevel1",
    *(f"RotateValveLevel{level}" for level in range(5)),
    *(f"TriFingerRotateCubeLevel{level}" for level in range(5)),
)
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN_OFFLINE)
def test_every_task_whose_assets_are_in_the_package_runs(name: str) -> None:
    starts_steps_and_shows(f"{name}-v1")


def test_two_robots_take_one_action_vector_and_move_apart() -> None:
    environment = made("TwoRobotPickCube-v1", cameras=())
    names, before = environment.schema().state.names, environment.reset(0).state_S  # type: ignore[union-attr]
    action = np.zeros(environment.schema().action.dim, np.float32)
    action[environment.schema().action.names.index("robot1_panda_joint1")] = 1.0
    for _ in range(3):
        after = environment.step(action).observation.state_S
    moved = {name: abs(delta) for name, delta in zip(names, after - before, strict=True)}
    assert moved["robot1_panda_joint1"] > 0.05
    assert moved["robot0_panda_joint1"] < 0.005
    environment.close()


@pytest.mark.parametrize(
    ("mode", "representation", "dim"),
    [
        ("pd_joint_pos", ActionRepresentation.ABSOLUTE_JOINT, 8),
        ("pd_ee_delta_pose", ActionRepresentation.DELTA_EE_SCALED, 7),
        ("pd_joint_target_delta_pos", ActionRepresentation.DELTA_JOINT, 8),
    ],
)
def test_a_control_mode_can_be_chosen(mode: str, representation: ActionRepresentation, dim: int) -> None:
    environment = made("PushCube-v1", cameras=(), control_mode=mode)
    assert (environment.schema().representation, environment.schema().action.dim) == (representation, dim)
    environment.close()


def test_a_control_mode_that_the_robot_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownOption, match="control_mode: PushCube-v1 has no 'fly'; allowed: pd_ee_delta_pos"):
        made("PushCube-v1", control_mode="fly")
    with pytest.raises(UnknownOption, match="control_mode: 'pd_ee_pose' of MS-HopperStand-v1"):
        made("MS-HopperStand-v1", control_mode="pd_ee_pose")


def test_a_task_nobody_declared_runs_with_the_robots_own_controller() -> None:
    environment = made("StackCube-v1")
    schema = environment.schema()
    assert schema.representation is ActionRepresentation.DELTA_JOINT
    assert schema.action.dim == 8
    result = environment.step(np.zeros(8, np.float32))
    assert not result.success
    assert environment.render()["observation.images.base"].shape == (SIZE, SIZE, 3)
    environment.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made("PickCube-v1").close()
    out = tmp_path_factory.mktemp("recorded") / "pick"
    assert main(f"--env PickCube-v1 --episodes 2 --out {out} --size {SIZE} --seed 100".split()) == 0
    return out


def test_replaying_recorded_actions_solves_the_task_at_the_last_one(recorded: Path, pick_cube: Environment) -> None:
    dataset = LeRobotDataset.open(recorded)
    assert dataset.schema.signature == pick_cube.schema().signature
    seeds = json.loads((recorded / "meta/recording.json").read_text())["seeds"]
    first = 0
    for episode, seed in zip(dataset.episodes, seeds, strict=True):
        state = pick_cube.reset(seed).state_S
        np.testing.assert_allclose(dataset.states_NS()[first], state, atol=1e-5)
        results = [pick_cube.step(action) for action in dataset.actions_NA()[first : first + episode.length]]
        assert [result.success for result in results] == [False] * (episode.length - 1) + [True]
        first += episode.length


def test_a_demonstration_replays_through_the_adapter_whichever_way_its_data_say_the_gripper_opens(
    push_cube: Environment, pick_cube: Environment
) -> None:
    for environment in (push_cube, pick_cube):
        outcome, kept = demonstrate(environment, expert_for(environment.env_id), 42)
        assert outcome is Outcome.SOLVED
        assert kept is not None
        schema = environment.schema()
        closing = Gripper(index=schema.action.dim - 1, convention=GripperConvention.CLOSE_POSITIVE)
        adapter = adapter_between(schema.model_copy(update={"gripper": closing}), schema)
        turned_NA = kept.actions_NA.copy()
        turned_NA[:, -1] *= -1
        environment.reset(42)
        results = [environment.step(action) for action in adapter(turned_NA)]
        assert [result.success for result in results] == [False] * (len(results) - 1) + [True]


def test_the_same_seed_and_actions_lead_to_the_same_end_but_for_how_contacts_are_solved(
    push_cube: Environment,
) -> None:
    outcome, kept = demonstrate(push_cube, expert_for("PushCube-v1"), 3)
    assert outcome is Outcome.SOLVED
    assert kept is not None

    def played() -> np.ndarray:
        rows = [[*push_cube.reset(3).state_S, 0.0]]
        for action in kept.actions_NA:
            result = push_cube.step(action)
            rows.append([*result.observation.state_S, result.reward])
        return np.array(rows)

    first = played()
    for other in range(4):
        demonstrate(push_cube, expert_for("PushCube-v1"), 50 + other)
        again = played()
        assert np.array_equal(again[:5], first[:5])  # before the cube is touched
        np.testing.assert_allclose(again, first, atol=1e-3)


@pytest.mark.slow
def test_an_exact_world_ends_bit_for_bit_alike_whatever_was_played_before() -> None:
    world = made("PushCube-v1", cameras=("base",), state=StateKind.PRIVILEGED, exact=True)
    try:
        _, kept = demonstrate(world, expert_for(world.env_id), 3)
        assert kept is not None

        def played() -> tuple[np.ndarray, np.ndarray]:
            rows = [[*world.reset(3).state_S, 0.0]]
            for action in kept.actions_NA:
                result = world.step(action)
                rows.append([*result.observation.state_S, result.reward])
            return np.array(rows), world.render()[f"{IMAGE_PREFIX}base"]

        first, picture = played()
        assert np.ptp(first, axis=0).max() > 0.05, "the cube moved"
        for other in range(4):
            demonstrate(world, expert_for(world.env_id), 50 + other)
            again, seen = played()
            assert np.array_equal(again, first)
            assert np.array_equal(seen, picture)
    finally:
        world.close()
