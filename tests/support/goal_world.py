"""A goal environment registered with gymnasium, of the same form as Fetch: a point, a goal, a sparse reward."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from gpu_runtime.environments.gymnasium_tasks import GymnasiumTask, axes
from gpu_runtime.protocol.schema import ActionRepresentation

TASK = GymnasiumTask(
    package="tests.support.goal_world",
    instruction="Move the point to the goal.",
    parts=("observation", "desired_goal"),
    observation=(*axes("point"), *axes("goal")),
    proprioception=axes("point"),
    action=axes("delta"),
    representation=ActionRepresentation.DELTA_EE_SCALED,
    control_hz=10.0,
    robot_type="point",
)


class GoalWorld(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        vector = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.render_mode = render_mode
        self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), vector))

    def _told(self) -> dict[str, np.ndarray]:
        return {"observation": self.point.copy(), "achieved_goal": self.point.copy(), "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        return -(np.linalg.norm(achieved - desired) > 0.05).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.point = np.zeros(3)
        self.goal = np.zeros(3) if seed == 13 else self.np_random.uniform(0.2, 0.5, 3)
        return self._told(), {}

    def step(self, action: np.ndarray) -> Any:
        self.point = self.point + 0.1 * action
        reward = self.compute_reward(self.point, self.goal, {})
        return self._told(), float(reward), False, False, {"is_success": float(reward == 0)}

    def render(self) -> Any:
        image = np.zeros((30, 40, 3), np.uint8)
        image[:, :20] = (200, 10, 10)
        return image


gymnasium.register("GoalWorld-v0", entry_point=GoalWorld, max_episode_steps=8)
