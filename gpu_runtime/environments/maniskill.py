"""ManiSkill environments on the CPU: physics in state mode, cameras rendered only when asked.

Shapes: H height, W width in pixels; S state dimensions, A action dimensions, K numbers of a snapshot.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from gpu_runtime.environments.base import EnvironmentKind, Proprioception, StepResult, check_action, check_cameras
from gpu_runtime.environments.maniskill_schema import per_robot
from gpu_runtime.environments.maniskill_start import (
    checked,
    describe,
    flags_of,
    hide_camera_housing,
    max_steps_of,
    no_prompts,
    sensors_of,
    start_worlds,
    take_pictures,
)
from gpu_runtime.environments.maniskill_state import StateReader
from gpu_runtime.environments.maniskill_tasks import ManiSkillTask
from gpu_runtime.protocol.schema import DatasetSchema


def make(kind: EnvironmentKind) -> "ManiSkillEnvironment":
    """Start ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption, SimulatorMissing."""
    return ManiSkillEnvironment(*checked(kind))


class ManiSkillEnvironment:
    """One ManiSkill task on the CPU; see ``base.Environment``. Without ``cameras`` it has all of the task's."""

    def __init__(self, kind: EnvironmentKind, task: ManiSkillTask) -> None:
        self.env_id, self.instruction = kind.env_id, task.instruction
        self.max_steps = max_steps_of(kind.env_id, task)
        self._task, self._kind = task, kind
        self._env = start_worlds(kind, task)
        self._world = cast(Any, self._env.unwrapped)
        self._flags: dict[str, np.ndarray] = {}  # [1] each
        self._start_try(seed=0)
        self._reader = self._read_by()
        self._sensors = sensors_of(self._world, kind)
        self._schema = describe(self._world, kind, self._reader.feature())

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
        with no_prompts():
            self._env.reset(seed=seed, options={"reconfigure": True} if self._kind.exact else {})
        hide_camera_housing(self._world)
        self._flags = flags_of(self._world.evaluate())

    def step(self, action_A: np.ndarray) -> StepResult:
        action = check_action(action_A, self._schema)
        _, reward, terminated, truncated, info = self._env.step(per_robot(self._world.agent, action[None]))
        self._flags = flags_of(info)
        return StepResult(
            observation=self._observation(),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=self.succeeded(),
        )

    def succeeded(self) -> bool:
        return bool(self._flags.get("success", [False])[0])

    def _observation(self) -> Proprioception:
        return Proprioception(state_S=self._reader.read()[0])

    def privileged(self) -> dict[str, np.ndarray]:
        """Poses [7] (position, quaternion wxyz) of the tool ``tcp`` and the task's objects, and the task's flags."""
        poses = {
            name: getattr(self._world, attribute).pose.raw_pose[0].numpy()
            for name, attribute in self._task.objects.items()
        }
        if hasattr(self._world.agent, "tcp"):
            poses["tcp"] = self._world.agent.tcp.pose.raw_pose[0].numpy()
        return poses | {name: value[0] for name, value in self._flags.items()}

    def snapshot(self) -> np.ndarray:
        return self._world.get_state()[0].numpy().copy()

    def restore(self, snapshot_K: np.ndarray) -> None:
        self._world.set_state(torch.from_numpy(snapshot_K)[None])
        self._flags = flags_of(self._world.evaluate())

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        keys = [camera.key for camera in self._schema.cameras] if cameras is None else list(cameras)
        check_cameras(self.env_id, keys, [camera.key for camera in self._schema.cameras])
        return {key: images[0] for key, images in take_pictures(self._world, self._sensors, keys).items()}

    def close(self) -> None:
        self._env.close()
