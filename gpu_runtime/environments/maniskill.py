"""ManiSkill environments on the CPU: physics in state mode, cameras rendered only when asked.

Shapes: H height, W width in pixels; S state dimensions, A action dimensions, K numbers of a snapshot.
"""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

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
    Proprioception,
    StateKind,
    StepResult,
    camera_of,
    check_action,
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
    per_robot,
    representation_of,
)
from gpu_runtime.environments.maniskill_state import StateReader
from gpu_runtime.environments.maniskill_tasks import TASKS, ManiSkillTask, task_of
from gpu_runtime.protocol.schema import DatasetSchema

_WITH_HAND_CAMERA = {"panda": "panda_wristcam"}
_CAMERA_HOUSING = "camera_link"  # of panda_wristcam

# Its only messages here are hints, for example that a task's author did not foresee the robot with a hand camera.
mani_skill.logger.setLevel(logging.ERROR)


def make(kind: EnvironmentKind) -> "ManiSkillEnvironment":
    """Start ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption, SimulatorMissing."""
    env_id = kind.env_id
    if env_id not in REGISTERED_ENVS:
        raise UnknownEnvironment(f"env: ManiSkill has no {env_id!r}; allowed: {', '.join(sorted(REGISTERED_ENVS))}")
    task = task_of(env_id)
    states = [state for state in StateKind if state is not StateKind.PRIVILEGED or task.privileged]
    check_options(kind, states=states, control_modes=CONTROL_MODES)
    return ManiSkillEnvironment(replace(kind, cameras=tuple(kind.cameras or task.cameras)), task)


@contextlib.contextmanager
def _no_prompts() -> Iterator[None]:
    """ManiSkill asks on the terminal before it downloads an asset; here the question fails instead of waiting."""
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdin = stdin


def _start(kind: EnvironmentKind, task: ManiSkillTask) -> gymnasium.Env:
    options: dict[str, Any] = {}
    env_id, cameras, control_mode = kind.env_id, kind.cameras or (), kind.control_mode or task.control_mode
    if control_mode is not None:
        options["control_mode"] = control_mode
    robot = REGISTERED_ENVS[env_id].cls.SUPPORTED_ROBOTS
    if "hand" in cameras and robot and robot[0] in _WITH_HAND_CAMERA:
        options["robot_uids"] = _WITH_HAND_CAMERA[robot[0]]
    try:
        with _no_prompts():
            return gymnasium.make(
                env_id,
                obs_mode="state",
                sim_backend="cpu",
                render_backend="cpu",
                sensor_configs={"width": kind.size, "height": kind.size},
                max_episode_steps=_max_steps(env_id, task),
                **options,
            )
    except AssertionError as error:
        if "not in supported modes" not in str(error):
            raise
        raise UnknownOption(f"control_mode: {control_mode!r} of {env_id}: {error}") from error
    except (EOFError, FileNotFoundError, ImportError, RuntimeError) as error:
        raise missing(env_id, error) from error


def _max_steps(env_id: str, task: ManiSkillTask) -> int:
    """The declared limit; of a task nobody declared, ManiSkill's own where it has one."""
    registered: int | None = REGISTERED_ENVS[env_id].max_episode_steps
    return task.max_steps if env_id in TASKS or registered is None else registered


class ManiSkillEnvironment:
    """One ManiSkill task on the CPU; see ``base.Environment``. Without ``cameras`` it has all of the task's."""

    def __init__(self, kind: EnvironmentKind, task: ManiSkillTask) -> None:
        self.env_id, self.instruction = kind.env_id, task.instruction
        self.max_steps = _max_steps(kind.env_id, task)
        self._task, self._kind = task, kind
        self._env = _start(kind, task)
        self._world = cast(Any, self._env.unwrapped)
        self._flags: dict[str, Any] = {}
        self._start_try(seed=0)
        self._reader = self._read_by()
        cameras = kind.cameras or ()
        self._sensors = {name.removesuffix(SENSOR_SUFFIX): name for name in self._world.scene.sensors}
        check_cameras(self.env_id, cameras, list(self._sensors))
        self._schema = self._describe(cameras or list(self._sensors), kind.size)

    def _describe(self, cameras: Sequence[str], size: int) -> DatasetSchema:
        agent = self._world.agent
        return DatasetSchema(
            cameras=tuple(camera_of(name, size) for name in cameras),
            state=self._reader.feature(),
            action=action_feature(agent),
            representation=representation_of(agent),
            gripper=gripper_of(agent),
            control_hz=float(self._world.control_freq),
            robot_type="+".join(one.uid for one in agents_of(agent).values()),
        )

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seed: int) -> Proprioception:
        """Start the try of ``seed``: always from the same state.

        Once something is touched, two tries of one seed may part by about 1e-4: PhysX treats a contact in one of two
        ways, depending on what happened before. So where it is to be ``exact`` the world is built anew, which takes
        190 ms instead of 2.
        """
        self._start_try(seed)
        if self._kind.exact:
            self._reader = self._read_by()
        return self._observation()

    def _read_by(self) -> StateReader:
        """It holds on to the robots of the world as it is built now."""
        return StateReader(self._world, self._task, self._kind.state, lambda: self._flags)

    def _start_try(self, seed: int) -> None:
        with _no_prompts():
            self._env.reset(seed=seed, options={"reconfigure": True} if self._kind.exact else {})
        self._hide_camera_housing()
        self._keep_flags(self._world.evaluate())

    def step(self, action_A: np.ndarray) -> StepResult:
        action = check_action(action_A, self._schema)
        _, reward, terminated, truncated, info = self._env.step(per_robot(self._world.agent, action))
        self._keep_flags(info)
        return StepResult(
            observation=self._observation(),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=self.succeeded(),
        )

    def _hide_camera_housing(self) -> None:
        """Its mesh has 425,000 triangles, more than all the rest: without it a picture takes half the time."""
        housings = [agent.robot.links_map.get(_CAMERA_HOUSING) for agent in agents_of(self._world.agent).values()]
        for part in [part for housing in housings if housing is not None for part in housing._objs]:
            visual = part.entity.find_component_by_type(RenderBodyComponent)
            if visual is not None and visual.is_enabled:
                visual.disable()

    def _keep_flags(self, info: Mapping[str, Any]) -> None:
        self._flags = {
            name: value.numpy()[0]
            for name, value in info.items()
            if isinstance(value, torch.Tensor) and value.ndim == 1
        }

    def succeeded(self) -> bool:
        return bool(self._flags.get("success", False))

    def _observation(self) -> Proprioception:
        return Proprioception(state_S=self._reader.read())

    def privileged(self) -> dict[str, np.ndarray]:
        """Poses [7] (position, quaternion wxyz) of the tool ``tcp`` and the task's objects, and the task's flags."""
        poses = {
            name: getattr(self._world, attribute).pose.raw_pose[0].numpy()
            for name, attribute in self._task.objects.items()
        }
        if hasattr(self._world.agent, "tcp"):
            poses["tcp"] = self._world.agent.tcp.pose.raw_pose[0].numpy()
        return poses | self._flags

    def snapshot(self) -> np.ndarray:
        return self._world.get_state()[0].numpy().copy()

    def restore(self, snapshot_K: np.ndarray) -> None:
        self._world.set_state(torch.from_numpy(snapshot_K)[None])
        self._keep_flags(self._world.evaluate())

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        keys = [camera.key for camera in self._schema.cameras] if cameras is None else list(cameras)
        check_cameras(self.env_id, keys, [camera.key for camera in self._schema.cameras])
        for marker in self._world._hidden_objects:  # goal markers that no camera of the robot may see
            marker.hide_visual()
        self._world.scene.update_render(update_sensors=True, update_human_render_cameras=False)
        sensors = {key: self._world.scene.sensors[self._sensors[key.removeprefix(IMAGE_PREFIX)]] for key in keys}
        for sensor in sensors.values():
            sensor.capture()
        return {key: self._picture(sensor) for key, sensor in sensors.items()}

    @staticmethod
    def _picture(sensor: Any) -> np.ndarray:
        textures = sensor.get_obs(rgb=True, depth=False, position=False, segmentation=False)
        return np.ascontiguousarray(textures["rgb"][0].numpy())

    def close(self) -> None:
        self._env.close()
