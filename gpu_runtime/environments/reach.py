"""Reach: move a point onto a goal in the plane; needs no simulator, a step takes microseconds.

Shapes: H height, W width in pixels; K = 5 numbers of a snapshot.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gpu_runtime.environments.base import (
    ACTION_KEY,
    IMAGE_PREFIX,
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
from gpu_runtime.environments.errors import UnknownEnvironment
from gpu_runtime.protocol.schema import ActionRepresentation, DatasetSchema, VectorFeature

MAX_STEPS = 20
SPEED = 0.1  # length of a step per axis at action 1; any goal is at most 16 such steps away
SUCCESS_DISTANCE = 0.05
TABLE_LIMIT = 1.0
DISTANCE_PRICE = 0.1

_ENV_ID = "joynexus/Reach-v0"
_TOP = "top"
_START_LIMIT = 0.8  # starts and goals lie in the square of this half width
_GOAL_COLOR, _POINT_COLOR, _TABLE_COLOR = (40, 200, 60), (220, 50, 40), 90


def make(kind: EnvironmentKind) -> "ReachEnvironment":
    """Start ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption."""
    if kind.env_id != _ENV_ID:
        raise UnknownEnvironment(f"env: joynexus has no {kind.env_id!r}; allowed: {_ENV_ID}")
    wanted = tuple(kind.cameras or (_TOP,))
    check_cameras(kind.env_id, wanted, (_TOP,))
    check_options(kind, states=(StateKind.PROPRIOCEPTION,))
    return ReachEnvironment(wanted, kind.size)


class ReachEnvironment:
    """A point of velocity control and a goal, drawn anew at every reset; see ``base.Environment``.

    State: position, then goal minus position. Action: velocity in [-1, 1] per axis, clipped. Reward of a step:
    -0.1 x distance, and 1 more on success, which ends the try.
    """

    env_id = _ENV_ID
    instruction = "Move the red dot onto the green square."
    max_steps = MAX_STEPS

    def __init__(self, cameras: Sequence[str] = (_TOP,), size: int = 32) -> None:
        self._schema = DatasetSchema(
            cameras=tuple(camera_of(name, size) for name in cameras),
            state=VectorFeature(key=STATE_KEY, names=("x", "y", "goal_delta_x", "goal_delta_y")),
            action=VectorFeature(key=ACTION_KEY, names=("velocity_x", "velocity_y")),
            representation=ActionRepresentation.DELTA_EE_SCALED,
            control_hz=10.0,
            robot_type="point",
        )
        self.reset(seed=0)

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seed: int) -> Proprioception:
        self._position, self._goal = start_and_goal(seed)
        self._steps = 0
        return self._observation()

    def step(self, action_A: np.ndarray) -> StepResult:
        velocity = np.clip(check_action(action_A, self._schema), -1.0, 1.0)
        self._position = np.clip(self._position + SPEED * velocity, -TABLE_LIMIT, TABLE_LIMIT)
        self._steps += 1
        success = self.succeeded()
        return StepResult(
            observation=self._observation(),
            reward=float(success) - DISTANCE_PRICE * self._distance(),
            terminated=success,
            truncated=self._steps >= MAX_STEPS,
            success=success,
        )

    def _distance(self) -> float:
        return float(np.hypot(*(self._goal - self._position)))

    def succeeded(self) -> bool:
        return self._distance() < SUCCESS_DISTANCE

    def _observation(self) -> Proprioception:
        return Proprioception(state_S=np.concatenate([self._position, self._goal - self._position]).astype(np.float32))

    def privileged(self) -> Mapping[str, np.ndarray]:
        """``position`` and ``goal``, [2] each."""
        return {"position": self._position.copy(), "goal": self._goal.copy()}

    def snapshot(self) -> np.ndarray:
        return np.array([*self._position, *self._goal, self._steps])

    def restore(self, snapshot_K: np.ndarray) -> None:
        self._position, self._goal = snapshot_K[:2].copy(), snapshot_K[2:4].copy()
        self._steps = int(snapshot_K[4])

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        available = {camera.key: camera for camera in self._schema.cameras}
        keys = list(available) if cameras is None else list(cameras)
        check_cameras(self.env_id, keys, list(available))
        return {
            key: draw_table(available[key].height, self._goal, self._position)
            for key in keys
            if key == IMAGE_PREFIX + _TOP
        }

    def close(self) -> None:
        """Nothing is held."""


def start_and_goal(seed: int) -> np.ndarray:
    """Where the try of ``seed`` begins, and where it leads: two points, [2, 2]."""
    return np.random.default_rng(seed).uniform(-_START_LIMIT, _START_LIMIT, (2, 2))


def draw_table(size: int, goal: np.ndarray, position: np.ndarray) -> np.ndarray:
    """The table from above, y upwards: uint8 [size, size, 3]."""
    image_HWC = np.full((size, size, 3), _TABLE_COLOR, np.uint8)
    centres_P = (np.arange(size) + 0.5) / size * 2 * TABLE_LIMIT - TABLE_LIMIT
    for place, reach, color in ((goal, 0.14, _GOAL_COLOR), (position, 0.09, _POINT_COLOR)):
        columns, rows = np.abs(centres_P - place[0]) < reach, np.abs(-centres_P - place[1]) < reach
        image_HWC[np.ix_(rows, columns)] = color
    return image_HWC
