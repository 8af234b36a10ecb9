"""Any id registered with gymnasium whose vectors ``gymnasium_tasks`` declares.

Shapes: H height, W width in pixels; A action dimensions, K numbers of a snapshot.
"""

import importlib
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
from gpu_runtime.environments.errors import SimulatorError, SimulatorMissing, UnknownEnvironment
from gpu_runtime.environments.gymnasium_tasks import TASKS, GymnasiumTask
from gpu_runtime.protocol.schema import DatasetSchema, VectorFeature

_SCENE = "scene"


def make(kind: EnvironmentKind) -> "GymnasiumEnvironment":
    """Start ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption, SimulatorMissing."""
    name = kind.env_id.rpartition("/")[2]
    if name not in TASKS:
        raise UnknownEnvironment(f"env: nobody declared gymnasium's {name!r}; allowed: {', '.join(TASKS)}")
    check_cameras(kind.env_id, kind.cameras or (), (_SCENE,))
    check_options(kind, states=(StateKind.PROPRIOCEPTION, StateKind.FULL))
    try:
        importlib.import_module(TASKS[name].package)
    except ImportError as error:
        raise SimulatorMissing(f"env: {kind.env_id} needs the Python package {TASKS[name].package!r}") from error
    return GymnasiumEnvironment(kind, name, TASKS[name])


class GymnasiumEnvironment:
    """One environment of gymnasium; see ``base.Environment``."""

    def __init__(self, kind: EnvironmentKind, name: str, task: GymnasiumTask) -> None:
        self.env_id, self.instruction = kind.env_id, task.instruction
        self._task = task
        self._env = gymnasium.make(name, render_mode="rgb_array")
        self._start_try(seed=0)
        self._check_sizes()
        names = task.observation if kind.state is StateKind.FULL else task.proprioception
        self._chosen_S = [task.observation.index(name) for name in names]
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
        """Whether a goal environment with its sparse reward (0 at the goal, -1 elsewhere) starts at the goal."""
        if not isinstance(observation, Mapping) or "achieved_goal" not in observation:
            return False
        judge = cast(Any, self._env.unwrapped).compute_reward
        return bool(judge(observation["achieved_goal"], observation["desired_goal"], {}) == 0)

    def _listen(self, observation: Any) -> None:
        parts = [observation[part] for part in self._task.parts] or [observation]
        self._told = np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)

    def _observation(self) -> Proprioception:
        return Proprioception(state_S=self._told[self._chosen_S].astype(np.float32))

    def succeeded(self) -> bool:
        return self._succeeded

    def privileged(self) -> Mapping[str, np.ndarray]:
        """Everything that the environment tells, by name, [1] each."""
        return {name: self._told[index : index + 1] for index, name in enumerate(self._task.observation)}

    def snapshot(self) -> np.ndarray:
        """What the environment tells of its state; enough to tell two starts apart."""
        return self._told.copy()

    def restore(self, snapshot_K: np.ndarray) -> None:
        raise SimulatorError(f"env: {self.env_id} cannot be put back into an earlier state; reset it and act again")

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        camera = self._schema.cameras[0]
        keys = [camera.key] if cameras is None else list(cameras)
        check_cameras(self.env_id, keys, [camera.key])
        return {key: fit_image(np.asarray(self._env.render()), size=camera.height) for key in keys}

    def close(self) -> None:
        self._env.close()
