"""Reach with many worlds in one process, in numpy on whichever device: what it does is reach's own arithmetic.

Shapes: N worlds, A = 2 action dimensions, K = 5 numbers of a snapshot; H height, W width in pixels.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gpu_runtime.environments.base import EnvironmentKind, Proprioception, StepResult, check_cameras
from gpu_runtime.environments.reach import (
    DISTANCE_PRICE,
    MAX_STEPS,
    SPEED,
    SUCCESS_DISTANCE,
    TABLE_LIMIT,
    ReachEnvironment,
    draw_table,
    make,
    start_and_goal,
)
from gpu_runtime.protocol.schema import DatasetSchema


def make_vector(kind: EnvironmentKind, count: int, device: str) -> "ReachWorlds":
    """Start ``count`` worlds of ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption."""
    del device  # microseconds on any
    return ReachWorlds(make(kind), count)


class ReachWorlds:
    """``count`` points, each with a goal of its own; see ``vector.VectorEnvironment``. ``one`` describes them all."""

    instruction, max_steps = ReachEnvironment.instruction, MAX_STEPS

    def __init__(self, one: ReachEnvironment, count: int) -> None:
        self.count = count
        self._env_id, self._schema = one.env_id, one.schema()
        self._position_N2, self._goal_N2 = np.zeros((count, 2)), np.zeros((count, 2))
        self._steps_N = np.zeros(count, int)
        self.reset(dict.fromkeys(range(count), 0))

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seeds: Mapping[int, int]) -> dict[int, Proprioception]:
        for world, seed in seeds.items():
            self._position_N2[world], self._goal_N2[world] = start_and_goal(seed)
            self._steps_N[world] = 0
        return {world: self._observation(world) for world in seeds}

    def step(self, actions_NA: np.ndarray, active_N: np.ndarray) -> dict[int, StepResult]:
        velocity_N2 = np.clip(np.asarray(actions_NA, np.float32), -1.0, 1.0)
        moved_N2 = np.clip(self._position_N2 + SPEED * velocity_N2, -TABLE_LIMIT, TABLE_LIMIT)
        self._position_N2 = np.where(active_N[:, None], moved_N2, self._position_N2)
        self._steps_N += active_N
        success_N, distance_N = self.succeeded(), self._distance()
        return {
            world: StepResult(
                observation=self._observation(world),
                reward=float(success_N[world]) - DISTANCE_PRICE * float(distance_N[world]),
                terminated=bool(success_N[world]),
                truncated=bool(self._steps_N[world] >= MAX_STEPS),
                success=bool(success_N[world]),
            )
            for world in np.flatnonzero(active_N).tolist()
        }

    def _distance(self) -> np.ndarray:
        distance_N: np.ndarray = np.hypot(*(self._goal_N2 - self._position_N2).T)
        return distance_N

    def succeeded(self) -> np.ndarray:
        return self._distance() < SUCCESS_DISTANCE

    def _observation(self, world: int) -> Proprioception:
        position, goal = self._position_N2[world], self._goal_N2[world]
        return Proprioception(state_S=np.concatenate([position, goal - position]).astype(np.float32))

    def snapshots(self) -> np.ndarray:
        return np.concatenate([self._position_N2, self._goal_N2, self._steps_N[:, None]], axis=1)

    def render(self, worlds: Sequence[int], cameras: Sequence[str]) -> dict[str, np.ndarray]:
        sizes = {camera.key: camera.height for camera in self._schema.cameras}
        check_cameras(self._env_id, cameras, list(sizes))
        return {
            key: np.stack([draw_table(sizes[key], self._goal_N2[one], self._position_N2[one]) for one in worlds])
            for key in cameras
        }

    def close(self) -> None:
        """Nothing is held."""
