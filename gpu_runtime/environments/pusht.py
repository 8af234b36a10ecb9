"""PushT: push a T-shaped block onto its outline, in plain Python (pymunk). Needs no graphics driver.

Shapes: H height, W width in pixels; K = 9 numbers of a snapshot.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import gym_pusht  # registers the id
import gymnasium
import numpy as np
from PIL import Image

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

assert gym_pusht  # imported for its registration

_ENV_ID = "gym_pusht/PushT-v0"
_TOP, _AGENT = "top", "agent"  # the whole table; a square that moves along with the agent
_TABLE_PX = 512
_AGENT_VIEW_PX = 160
_MAX_STEPS = 300
_STATE_NAMES = {
    StateKind.PROPRIOCEPTION: ("agent_x", "agent_y"),
    StateKind.PRIVILEGED: ("agent_x", "agent_y", "block_x", "block_y", "block_cos", "block_sin"),
}


def make(kind: EnvironmentKind) -> "PushTEnvironment":
    """Start ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption."""
    if kind.env_id != _ENV_ID:
        raise UnknownEnvironment(f"env: gym_pusht has no {kind.env_id!r}; allowed: {_ENV_ID}")
    wanted = tuple(kind.cameras or (_TOP,))
    check_cameras(kind.env_id, wanted, (_TOP, _AGENT))
    check_options(kind, states=tuple(_STATE_NAMES))
    return PushTEnvironment(wanted, kind.size, kind.state)


class PushTEnvironment:
    """One PushT table, 512 x 512 units seen from above; see ``base.Environment``."""

    env_id = _ENV_ID
    instruction = "Push the grey T onto the green T outline."

    def __init__(self, cameras: Sequence[str], size: int, state: StateKind) -> None:
        self._state = state
        self._env = gymnasium.make(
            _ENV_ID,
            obs_type="state",
            render_mode="rgb_array",
            max_episode_steps=_MAX_STEPS,
        )
        self._world = cast(Any, self._env.unwrapped)
        self._schema = DatasetSchema(
            cameras=tuple(camera_of(name, size) for name in cameras),
            state=VectorFeature(key=STATE_KEY, names=_STATE_NAMES[state]),
            action=VectorFeature(key=ACTION_KEY, names=("target_x", "target_y")),
            representation=ActionRepresentation.ABSOLUTE_POINT,
            control_hz=float(self._world.control_hz),
            robot_type="pusht_agent",
        )

    @property
    def max_steps(self) -> int | None:
        return self._env.spec.max_episode_steps if self._env.spec else None

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seed: int) -> Proprioception:
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

    def _observation(self) -> Proprioception:
        values = [*self._world.agent.position]
        if self._state is StateKind.PRIVILEGED:
            block = self._world.block
            values += [*block.position, np.cos(block.angle), np.sin(block.angle)]
        return Proprioception(state_S=np.array(values, np.float32))

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
        available = {camera.key: camera for camera in self._schema.cameras}
        keys = list(available) if cameras is None else list(cameras)
        check_cameras(self.env_id, keys, list(available))
        # The environment's public render() would draw a cross at the last action: the answer in the picture.
        table = self._world._get_img(self._world._draw(), _TABLE_PX, _TABLE_PX)
        views = {IMAGE_PREFIX + _TOP: lambda: table, IMAGE_PREFIX + _AGENT: lambda: self._round_agent(table)}
        return {key: _scaled(views[key](), available[key].height) for key in keys}

    def _round_agent(self, table_HWC: np.ndarray) -> np.ndarray:
        """The square of the table around the agent; black beyond the edge."""
        half = _AGENT_VIEW_PX // 2
        padded = np.pad(table_HWC, ((half, half), (half, half), (0, 0)))
        x, y = (round(value) for value in self._world.agent.position)
        return padded[y : y + _AGENT_VIEW_PX, x : x + _AGENT_VIEW_PX]

    def close(self) -> None:
        self._env.close()


def _scaled(image_HWC: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(Image.fromarray(np.ascontiguousarray(image_HWC)).resize((size, size), Image.Resampling.BOX))
