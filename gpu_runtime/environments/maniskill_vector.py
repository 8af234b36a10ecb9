"""Many worlds of one ManiSkill task in one simulation on a GPU; on the CPU ManiSkill has one world only.

Shapes: N worlds, A action dimensions, K numbers of a snapshot; H height, W width in pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from gpu_runtime.environments.base import EnvironmentKind, Proprioception, StepResult, check_cameras
from gpu_runtime.environments.maniskill_draws import DrawOnCpu
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


def make_vector(kind: EnvironmentKind, count: int, device: str) -> "ManiSkillWorlds":
    """Start ``count`` worlds; raises UnknownEnvironment, UnknownCamera, UnknownOption, SimulatorMissing."""
    return ManiSkillWorlds(*checked(kind), count, device)


class ManiSkillWorlds:
    """``count`` worlds of a task of ``maniskill_tasks.ALIKE``; see ``vector.VectorEnvironment``.

    ManiSkill always moves all worlds. Those that are not to move are put back: poses, joints and velocities exactly,
    though how their contacts were being solved is forgotten.
    """

    def __init__(self, kind: EnvironmentKind, task: ManiSkillTask, count: int, device: str) -> None:
        self.env_id, self.instruction, self.count = kind.env_id, task.instruction, count
        self.max_steps = max_steps_of(kind.env_id, task)
        self._env: Any = start_worlds(kind, task, count=count, device=device)  # Gymnasium types one world only
        self._world: Any = self._env.unwrapped
        hide_camera_housing(self._world)
        self._flags: dict[str, np.ndarray] = {}  # [N] each
        self._reader = StateReader(self._world, task, kind.state, lambda: self._flags)
        self.reset(dict.fromkeys(range(count), 0))
        self._sensors = sensors_of(self._world, kind)
        self._schema = describe(self._world, kind, self._reader.feature())

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seeds: Mapping[int, int]) -> dict[int, Proprioception]:
        """One world after the other: of worlds that are reset together ManiSkill seeds the first and no other."""
        for world, seed in seeds.items():
            only = torch.tensor([world], device=self._world.device)
            with no_prompts(), DrawOnCpu():
                self._env.reset(seed=[seed] * self.count, options={"env_idx": only})
        self._flags = flags_of(self._world.evaluate())
        states_NS = self._reader.read()
        return {world: Proprioception(state_S=states_NS[world]) for world in seeds}

    def step(self, actions_NA: np.ndarray, active_N: np.ndarray) -> dict[int, StepResult]:
        put_back = self._hold(np.flatnonzero(~active_N))
        _, reward_N, terminated_N, truncated_N, info = self._env.step(per_robot(self._world.agent, actions_NA))
        self._flags = flags_of(info)
        results = self._results(
            np.flatnonzero(active_N).tolist(), *(one.cpu().numpy() for one in (reward_N, terminated_N, truncated_N))
        )
        put_back()
        return results

    def _hold(self, resting: np.ndarray) -> Callable[[], None]:
        """What puts these worlds back into their present state."""
        if not len(resting):
            return lambda: None
        worlds = torch.from_numpy(resting).to(self._world.device)
        states, steps = self._world.get_state()[worlds], self._world.elapsed_steps[worlds]

        def put_back() -> None:
            self._world.set_state(states, worlds)
            self._world.elapsed_steps[worlds] = steps
            self._flags = flags_of(self._world.evaluate())

        return put_back

    def _results(
        self, worlds: Sequence[int], reward_N: np.ndarray, terminated_N: np.ndarray, truncated_N: np.ndarray
    ) -> dict[int, StepResult]:
        states_NS, success_N = self._reader.read(), self.succeeded()
        return {
            world: StepResult(
                observation=Proprioception(state_S=states_NS[world]),
                reward=float(reward_N[world]),
                terminated=bool(terminated_N[world]),
                truncated=bool(truncated_N[world]),
                success=bool(success_N[world]),
            )
            for world in worlds
        }

    def succeeded(self) -> np.ndarray:
        return self._flags.get("success", np.zeros(self.count, bool)).astype(bool)

    def snapshots(self) -> np.ndarray:
        states_NK: np.ndarray = self._world.get_state().cpu().numpy().copy()
        return states_NK

    def render(self, worlds: Sequence[int], cameras: Sequence[str]) -> dict[str, np.ndarray]:
        check_cameras(self.env_id, cameras, [camera.key for camera in self._schema.cameras])
        pictures = take_pictures(self._world, self._sensors, cameras)
        return {key: images_NHWC[list(worlds)] for key, images_NHWC in pictures.items()}

    def close(self) -> None:
        self._env.close()
