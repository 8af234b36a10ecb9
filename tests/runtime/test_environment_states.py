"""What a policy may know instead of seeing it: kinds of state, their names, and control modes."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.environments.base import Environment, StateKind
from gpu_runtime.environments.errors import SimulatorMissing, UnknownOption
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.record import main as record
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.protocol.schema import ActionRepresentation
from tests.support.environments import pool_of, wanted

PUSHT = "gym_pusht/PushT-v0"


def names_of(environment: Environment) -> tuple[str, ...]:
    feature = environment.schema().state
    assert feature is not None
    return feature.names


def test_the_privileged_state_of_pusht_is_where_everything_is() -> None:
    pusht = make_environment(PUSHT, state=StateKind.PRIVILEGED)
    assert names_of(pusht) == ("agent_x", "agent_y", "block_x", "block_y", "block_cos", "block_sin")
    state, scene = pusht.reset(4).state_S, pusht.privileged()
    np.testing.assert_allclose(state[:4], [*scene["agent"], *scene["block"][:2]], rtol=1e-6)
    assert np.arctan2(state[5], state[4]) == pytest.approx(np.angle(np.exp(1j * scene["block"][2])), abs=1e-5)


def test_states_and_control_modes_that_an_environment_lacks_are_refused_with_those_it_has() -> None:
    with pytest.raises(UnknownOption, match=r"PushT-v0 has no 'full'; allowed: proprioception, privileged"):
        make_environment(PUSHT, state=StateKind.FULL)
    with pytest.raises(UnknownOption, match=r"Reach-v0 has no 'privileged'; allowed: proprioception"):
        make_environment("joynexus/Reach-v0", state=StateKind.PRIVILEGED)
    with pytest.raises(UnknownOption, match=r"control_mode: .*PushT-v0 has no 'pd_joint_pos'; allowed: none"):
        make_environment(PUSHT, control_mode="pd_joint_pos")
    for size in (0, 15, 1025):
        with pytest.raises(UnknownOption, match=rf"size: {size} pixels; allowed: 16 to 1024"):
            make_environment("joynexus/Reach-v0", size=size)


async def test_a_session_and_a_recording_of_privileged_state_agree(tmp_path: Path) -> None:
    out = tmp_path / "pusht"
    assert record(f"--env {PUSHT} --episodes 1 --out {out} --state privileged --size 16 --seed 40".split()) == 0
    dataset = LeRobotDataset.open(out)
    (seed,) = json.loads((out / "meta/recording.json").read_text())["seeds"]
    spec = wanted(PUSHT, cameras=None, size=16, state=StateKind.PRIVILEGED)
    async with pool_of() as pool:
        async with await pool.open(spec) as session:
            assert session.schema.signature == dataset.schema.signature
            (reset,) = await session.reset([seed])
            np.testing.assert_allclose(reset.observation.state_S, dataset.states_NS()[0], atol=1e-5)
            pid = session.processes[0].pid
        async with await pool.open(wanted(PUSHT, cameras=None, size=16)) as other:
            assert other.processes[0].pid != pid


async def test_a_session_without_cameras_has_a_schema_without_cameras_and_renders_nothing() -> None:
    async with pool_of() as pool, await pool.open(wanted(PUSHT, state=StateKind.PRIVILEGED)) as session:
        assert session.schema.cameras == ()
        assert (await session.reset([1]))[0].observation.images == ()


def maniskill(env_id: str, **options: object) -> Environment:
    try:
        return make_environment(env_id, size=32, **options)  # type: ignore[arg-type]
    except SimulatorMissing as error:
        pytest.skip(f"Vulkan device missing: {error}")


@pytest.mark.simulator
def test_the_privileged_state_of_push_cube_is_tool_and_cube() -> None:
    environment = maniskill("PushCube-v1", state=StateKind.PRIVILEGED)
    axes = ("x", "y", "z")
    assert names_of(environment) == tuple(f"{part}_{axis}" for part in ("tcp", "cube", "tcp_to_cube") for axis in axes)
    state, scene = environment.reset(3).state_S, environment.privileged()
    tool, cube = scene["tcp"][:3], scene["cube"][:3]
    np.testing.assert_allclose(state, [*tool, *cube, *(cube - tool)], atol=1e-6)
    environment.close()


@pytest.mark.simulator
def test_the_privileged_state_of_pick_cube_tells_whether_the_cube_is_held() -> None:
    environment = maniskill("PickCube-v1", state=StateKind.PRIVILEGED)
    assert len(names_of(environment)) == 16
    held, expert = names_of(environment).index("is_grasped"), expert_for("PickCube-v1")
    states = [environment.reset(3).state_S]
    while not environment.succeeded():
        states.append(environment.step(expert(environment.privileged())).observation.state_S)
    assert (states[0][held], states[-1][held]) == (0.0, 1.0)
    environment.close()


@pytest.mark.simulator
def test_the_privileged_state_of_pick_cube_tells_the_turn_to_the_cubes_sides_as_its_expert_makes_it() -> None:
    environment, expert = maniskill("PickCube-v1", state=StateKind.PRIVILEGED), expert_for("PickCube-v1")
    at, made = names_of(environment).index("cube_turn"), environment.schema().action.names.index("rotation_z")
    turns = []
    for seed in range(6):
        state_S = environment.reset(seed).state_S
        action_A = expert(environment.privileged())
        turns.append(state_S[at])
        assert abs(state_S[at]) <= np.pi / 4
        if abs(state_S[at]) < 0.05:
            continue  # tilt may weigh more
        assert np.sign(action_A[made]) == -np.sign(state_S[at])  # ManiSkill turns against the sign of its action
    assert np.ptp(turns) > 0.3
    environment.close()


@pytest.mark.simulator
def test_any_task_offers_its_whole_state_and_other_control_modes() -> None:
    environment = maniskill("PushCube-v1", state=StateKind.FULL, control_mode="pd_joint_delta_pos")
    assert len(names_of(environment)) == 35
    assert environment.schema().representation is ActionRepresentation.DELTA_JOINT
    first = environment.reset(3).state_S
    assert first.shape == (35,)
    moved = environment.step(np.full(8, 0.5, np.float32)).observation.state_S
    assert np.abs(moved - first).max() > 0.01
    environment.close()
    with pytest.raises(UnknownOption, match=r"no 'warp'; allowed: pd_ee_delta_pos"):
        make_environment("PushCube-v1", control_mode="warp")
    with pytest.raises(UnknownOption, match=r"'pd_ee_pose' of MS-CartpoleBalance-v1: .*\['pd_joint_delta_pos'\]"):
        make_environment("MS-CartpoleBalance-v1", control_mode="pd_ee_pose")
    with pytest.raises(UnknownOption, match=r"StackCube-v1 has no 'privileged'; allowed: proprioception, full"):
        make_environment("StackCube-v1", state=StateKind.PRIVILEGED)
