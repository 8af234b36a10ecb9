"""PushT: push a T-shaped block onto its outline, in plain Python (pymunk). Needs no graphics driver.

Shapes: H height, W width in pixels; K = 9 numbers of a snapshot.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gym_pusht  # registers the id
import gymnasium
import numpy as np

from gpu_runtime.environments.base import (
    ACTION_KEY,
    IMAGE_PREFIX,
    STATE_KEY,
    Observation,
    StepResult,
    camera_of,
    check_action,
    check_cameras,
)
from gpu_runtime.environments.errors import UnknownEnvironment
from gpu_runtime.protocol.schema import ActionRepresentation, DatasetSchema, VectorFeature

assert gym_pusht  # imported for its registration

_ENV_ID = "gym_pusht/PushT-v0"
_CAMERA = "top"
_MAX_STEPS = 300


def make(env_id: str, *, cameras: Sequence[str] | None, size: int) -> "PushTEnvironment":
    """Start ``env_id``; raises UnknownEnvironment, UnknownCamera."""
    if env_id != _ENV_ID:
        raise UnknownEnvironment(f"env: gym_pusht has no {env_id!r}; allowed: {_ENV_ID}")
    check_cameras(env_id, tuple(cameras or ()), (_CAMERA,))
    return PushTEnvironment(size)


class PushTEnvironment:
    """One PushT table, 512 x 512 units seen from above; see ``base.Environment``."""

    env_id = _ENV_ID
    instruction = "Push the grey T onto the green T outline."

    def __init__(self, size: int) -> None:
        self._env = gymnasium.make(
            _ENV_ID,
            obs_type="state",
            render_mode="rgb_array",
            observation_width=size,
            observation_height=size,
            max_episode_steps=_MAX_STEPS,
        )
        self._world: Any = self._env.unwrapped
        self._schema = DatasetSchema(
            cameras=(camera_of(_CAMERA, size),),
            state=VectorFeature(key=STATE_KEY, names=("agent_x", "agent_y")),
            action=VectorFeature(key=ACTION_KEY, names=("target_x", "target_y")),
            representation=ActionRepresentation.ABSOLUTE_POINT,
            control_hz=float(self._world.control_hz),
            robot_type="pusht_agent",
        )

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seed: int) -> Observation:
        self._env.reset(seed=seed)
        return self._observation()

    def step(self, action_A: np.ndarray) -> StepResult:
        action = check_action(action_A, self._schema)
        _, reward, terminated, truncated, info = self._env.step(np.clip(action, 0, 512))
        return StepResult(
            observation=self._observation(),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=bool(info["is_success"]),
        )

    def succeeded(self) -> bool:
        return bool(self._world._get_coverage() > self._world.success_threshold)

    def _observation(self) -> Observation:
        return Observation(state_S=np.array(self._world.agent.position, np.float32))

    def privileged(self) -> Mapping[str, np.ndarray]:
        """``agent`` [2]; ``block``, ``goal`` [3] (x, y, angle); ``centre`` [2] of the block's mass in its frame."""
        block = self._world.block
        return {
            "agent": np.array(self._world.agent.position),
            "block": np.array([*block.position, block.angle]),
            "goal": np.array(self._world.goal_pose),
            "centre": np.array(block.center_of_gravity),
        }

    def snapshot(self) -> np.ndarray:
        agent, block = self._world.agent, self._world.block
        return np.array(
            [*agent.position, *agent.velocity, *block.position, block.angle, *block.velocity, block.angular_velocity]
        )

    def restore(self, snapshot_K: np.ndarray) -> None:
        values = [float(value) for value in snapshot_K]
        agent, block = self._world.agent, self._world.block
        agent.position, agent.velocity = tuple(values[0:2]), tuple(values[2:4])
        # Turning moves the body about its centre of mass, so the angle comes before the position.
        block.angle = values[6]
        block.position, block.velocity, block.angular_velocity = tuple(values[4:6]), tuple(values[7:9]), values[9]
        self._world.space.reindex_shapes_for_body(block)
        self._world.space.reindex_shapes_for_body(agent)

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        key = IMAGE_PREFIX + _CAMERA
        check_cameras(self.env_id, [] if cameras is None else list(cameras), [key])
        # The environment's own pixel observation: its public render() draws a cross at the last action.
        return {key: np.ascontiguousarray(self._world._render(visualize=False))}

    def close(self) -> None:
        self._env.close()
