"""How a ManiSkill world is started and described: the same for one world on the CPU and for many on a GPU.

Shapes: N worlds, S state dimensions.
"""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import mani_skill
import mani_skill.envs  # registers the ids
import numpy as np
import torch
from mani_skill.utils.registration import REGISTERED_ENVS
from sapien.render import RenderBodyComponent

from gpu_runtime.environments.base import (
    IMAGE_PREFIX,
    EnvironmentKind,
    StateKind,
    camera_of,
    check_cameras,
    check_options,
)
from gpu_runtime.environments.errors import UnknownEnvironment, UnknownOption
from gpu_runtime.environments.maniskill_assets import missing
from gpu_runtime.environments.maniskill_schema import (
    CONTROL_MODES,
    SENSOR_SUFFIX,
    action_feature,
    agents_of,
    gripper_of,
    representation_of,
)
from gpu_runtime.environments.maniskill_tasks import TASKS, ManiSkillTask, task_of
from gpu_runtime.protocol.schema import DatasetSchema, VectorFeature

_BACKENDS = {"cpu": ("physx_cpu", "sapien_cpu"), "cuda": ("physx_cuda", "sapien_cuda")}  # simulation, pictures
_WITH_HAND_CAMERA = {"panda": "panda_wristcam"}
_CAMERA_HOUSING = "camera_link"  # of panda_wristcam

# Its only messages here are hints, for example that a task's author did not foresee the robot with a hand camera.
mani_skill.logger.setLevel(logging.ERROR)


def checked(kind: EnvironmentKind) -> tuple[EnvironmentKind, ManiSkillTask]:
    """The task, and ``kind`` with its cameras by name. Raises UnknownEnvironment, UnknownOption."""
    env_id = kind.env_id
    if env_id not in REGISTERED_ENVS:
        raise UnknownEnvironment(f"env: ManiSkill has no {env_id!r}; allowed: {', '.join(sorted(REGISTERED_ENVS))}")
    task = task_of(env_id)
    states = [state for state in StateKind if state is not StateKind.PRIVILEGED or task.privileged]
    check_options(kind, states=states, control_modes=CONTROL_MODES)
    return replace(kind, cameras=tuple(kind.cameras or task.cameras)), task


@contextlib.contextmanager
def no_prompts() -> Iterator[None]:
    """ManiSkill asks on the terminal before it downloads an asset; here the question fails instead of waiting."""
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdin = stdin


def start_worlds(kind: EnvironmentKind, task: ManiSkillTask, *, count: int = 1, device: str = "cpu") -> gymnasium.Env:
    """``count`` worlds of ``kind``, several on "cuda" only. Raises UnknownOption, SimulatorMissing."""
    sim_backend, render_backend = _BACKENDS[device]
    options: dict[str, Any] = {}
    env_id, cameras, control_mode = kind.env_id, kind.cameras or (), kind.control_mode or task.control_mode
    if control_mode is not None:
        options["control_mode"] = control_mode
    robot = REGISTERED_ENVS[env_id].cls.SUPPORTED_ROBOTS
    if "hand" in cameras and robot and robot[0] in _WITH_HAND_CAMERA:
        options["robot_uids"] = _WITH_HAND_CAMERA[robot[0]]
    try:
        with no_prompts():
            return gymnasium.make(
                env_id,
                obs_mode="state",
                num_envs=count,
                sim_backend=sim_backend,
                render_backend=render_backend,
                sensor_configs={"width": kind.size, "height": kind.size},
                max_episode_steps=max_steps_of(env_id, task),
                **options,
            )
    except AssertionError as error:
        if "not in supported modes" not in str(error):
            raise
        raise UnknownOption(f"control_mode: {control_mode!r} of {env_id}: {error}") from error
    except (EOFError, FileNotFoundError, ImportError, RuntimeError) as error:
        raise missing(env_id, error) from error


def max_steps_of(env_id: str, task: ManiSkillTask) -> int:
    """The declared limit; of a task nobody declared, ManiSkill's own where it has one."""
    registered: int | None = REGISTERED_ENVS[env_id].max_episode_steps
    return task.max_steps if env_id in TASKS or registered is None else registered


def sensors_of(world: Any, kind: EnvironmentKind) -> dict[str, str]:
    """ManiSkill's sensors by our cameras' names. Raises UnknownCamera where ``kind`` names another."""
    sensors = {name.removesuffix(SENSOR_SUFFIX): name for name in world.scene.sensors}
    check_cameras(kind.env_id, kind.cameras or (), list(sensors))
    return sensors


def describe(world: Any, kind: EnvironmentKind, state: VectorFeature) -> DatasetSchema:
    """The schema; without cameras in ``kind`` it has all of the task's."""
    agent = world.agent
    return DatasetSchema(
        cameras=tuple(camera_of(name, kind.size) for name in kind.cameras or sensors_of(world, kind)),
        state=state,
        action=action_feature(agent),
        representation=representation_of(agent),
        gripper=gripper_of(agent),
        control_hz=float(world.control_freq),
        robot_type="+".join(one.uid for one in agents_of(agent).values()),
    )


def hide_camera_housing(world: Any) -> None:
    """Its mesh has 425,000 triangles, more than all the rest: without it a picture takes half the time."""
    housings = [agent.robot.links_map.get(_CAMERA_HOUSING) for agent in agents_of(world.agent).values()]
    for part in [part for housing in housings if housing is not None for part in housing._objs]:
        visual = part.entity.find_component_by_type(RenderBodyComponent)
        if visual is not None and visual.is_enabled:
            visual.disable()


def flags_of(info: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The task's flags and numbers of every world, [N] each."""
    return {
        name: value.cpu().numpy()
        for name, value in info.items()
        if isinstance(value, torch.Tensor) and value.ndim == 1
    }


def take_pictures(world: Any, sensors: Mapping[str, str], keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Images uint8 [N, H, W, 3] of every world's present state, by camera key."""
    for marker in world._hidden_objects:  # goal markers that no camera of the robot may see
        marker.hide_visual()
    world.scene.update_render(update_sensors=True, update_human_render_cameras=False)
    chosen = {key: world.scene.sensors[sensors[key.removeprefix(IMAGE_PREFIX)]] for key in keys}
    for sensor in chosen.values():
        sensor.capture()
    return {key: _pictures(sensor) for key, sensor in chosen.items()}


def _pictures(sensor: Any) -> np.ndarray:
    textures = sensor.get_obs(rgb=True, depth=False, position=False, segmentation=False)
    return np.ascontiguousarray(textures["rgb"].cpu().numpy())
