"""Any id registered with gymnasium whose vectors ``gymnasium_tasks`` declares.

Shapes: H height, W width in pixels; A action dimensions, K numbers of a snapshot.
"""

import contextlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np

from gpu_runtime.data.images import fit_image
from gpu_runtime.environments.base import (
    ACTION_KEY,
    STATE_KEY,
    EnvironmentKind,
    Proprioception,
    StateKind,
    StepResult,
    camera_of,
    check_action,
    check_cameras,
    check_options,
)
from gpu_runtime.environments.errors import CannotRestore, SimulatorError, SimulatorMissing, UnknownEnvironment
from gpu_runtime.environments.gymnasium_tasks import TASKS, GymnasiumTask
from gpu_runtime.environments.mujoco_gl import choose_gl
from gpu_runtime.protocol.schema import DatasetSchema, VectorFeature

_SCENE = "scene"


def make(kind: EnvironmentKind) -> "GymnasiumEnvironment":
    """Start ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption, SimulatorMissing."""
    name = kind.env_id.rpartition("/")[2]
    if name not in TASKS:
        raise UnknownEnvironment(f"env: nobody declared gymnasium's {name!r}; allowed: {', '.join(TASKS)}")
    task = TASKS[name]
    check_cameras(kind.env_id, kind.cameras or (), (_SCENE,))
    check_options(kind, states=[state for state in StateKind if state is not StateKind.PRIVILEGED or task.privileged])
    try:
        with contextlib.redirect_stdout(sys.stderr):
            importlib.import_module(task.package)
    except ImportError as error:
        raise SimulatorMissing(f"env: {kind.env_id} needs the Python package {task.package!r}") from error
    if task.view is not None and kind.cameras != ():
        choose_gl()
    return GymnasiumEnvironment(kind, name, task)


class GymnasiumEnvironment:
    """One environment of gymnasium; see ``base.Environment``."""

    def __init__(self, kind: EnvironmentKind, name: str, task: GymnasiumTask) -> None:
        self.env_id, self.instruction = kind.env_id, task.instruction
        self._task = task
        self._env = gymnasium.make(name, render_mode="rgb_array")
        if task.view is not None:
            self._renderer.default_cam_config = task.view
        self._start_try(seed=0)
        self._check_sizes()
        names = {
            StateKind.PROPRIOCEPTION: task.proprioception,
            StateKind.PRIVILEGED: task.privileged,
            StateKind.FULL: task.observation,
        }[kind.state]
        told = (*task.observation, *task.ways)
        self._chosen_S = [told.index(name) for name in names]
        self._schema = DatasetSchema(
            cameras=(camera_of(_SCENE, kind.size),),
            state=VectorFeature(key=STATE_KEY, names=names),
            action=VectorFeature(key=ACTION_KEY, names=task.action),
            representation=task.representation,
            gripper=task.gripper,
            control_hz=task.control_hz,
            robot_type=task.robot_type,
        )

    def _check_sizes(self) -> None:
        space = self._env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or space.shape != (len(self._task.action),):
            raise SimulatorError(f"env: {self.env_id} takes {space}; declared are {len(self._task.action)} numbers")
        if self._told.shape != (len(self._task.observation),):
            raise SimulatorError(
                f"env: {self.env_id} tells {self._told.shape[0]} numbers; declared are {len(self._task.observation)}"
            )
        index = self._task.observation.index
        self._ways_W2 = np.array([(index(to), index(start)) for to, start in self._task.ways.values()], int)
        self._action_space = space

    @property
    def max_steps(self) -> int | None:
        return self._env.spec.max_episode_steps if self._env.spec else None

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seed: int) -> Proprioception:
        self._start_try(seed)
        return self._observation()

    def _start_try(self, seed: int) -> None:
        observation, info = self._env.reset(seed=seed)
        self._listen(observation)
        self._succeeded = bool(info.get(self._task.success, self._is_at_goal(observation)))

    def step(self, action_A: np.ndarray) -> StepResult:
        action = np.clip(check_action(action_A, self._schema), self._action_space.low, self._action_space.high)
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._listen(observation)
        self._succeeded = bool(info.get(self._task.success, False))
        return StepResult(
            observation=self._observation(),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=self._succeeded,
        )

    def _is_at_goal(self, observation: Any) -> bool:
        """Whether a goal environment starts at the goal: by its own word, else by its sparse reward, 0 there only."""
        if not isinstance(observation, Mapping) or "achieved_goal" not in observation:
            return False
        world, places = cast(Any, self._env.unwrapped), (observation["achieved_goal"], observation["desired_goal"])
        if hasattr(world, "_is_success"):
            return bool(world._is_success(*places))
        return bool(world.compute_reward(*places, {}) == 0)

    def _listen(self, observation: Any) -> None:
        parts = [observation[part] for part in self._task.parts] or [observation]
        self._told = np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)

    def _observation(self) -> Proprioception:
        return Proprioception(state_S=self._everything()[self._chosen_S].astype(np.float32))

    def _everything(self) -> np.ndarray:
        """What the environment tells, then the declared ways."""
        to_W, start_W = self._told[self._ways_W2.reshape(-1, 2)].T
        return np.concatenate([self._told, to_W - start_W])

    def succeeded(self) -> bool:
        return self._succeeded

    def privileged(self) -> Mapping[str, np.ndarray]:
        """Everything that the environment tells, and the declared ways, by name, [1] each."""
        names = (*self._task.observation, *self._task.ways)
        return {name: value.reshape(1) for name, value in zip(names, self._everything(), strict=True)}

    def snapshot(self) -> np.ndarray:
        """What the environment tells of its state; enough to tell two starts apart."""
        return self._told.copy()

    def restore(self, snapshot_K: np.ndarray) -> None:
        raise CannotRestore(f"env: {self.env_id} cannot be put back into an earlier state; reset it and act again")

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        camera = self._schema.cameras[0]
        keys = [camera.key] if cameras is None else list(cameras)
        check_cameras(self.env_id, keys, [camera.key])
        if self._task.view is not None:
            self._take_the_brush()
        return {key: fit_image(np.asarray(self._env.render()), size=camera.height) for key in keys}

    def _take_the_brush(self) -> None:
        """MuJoCo draws in whichever context is current: another environment's, where a process holds several."""
        choose_gl()
        self._renderer._get_viewer("rgb_array").make_context_current()

    @property
    def _renderer(self) -> Any:
        return cast(Any, self._env.unwrapped).mujoco_renderer

    def close(self) -> None:
        if self._task.view is not None and self._renderer._viewers:
            # Freed later, by the garbage collector, it would take the pictures of whoever is drawing then with it.
            self._take_the_brush()
            self._renderer._get_viewer("rgb_array").con.free()
        self._env.close()
