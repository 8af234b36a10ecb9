"""One environment inside a worker: chunks of actions, one picture per chunk, what happened since the reset.

Shapes: C actions of a chunk, A action dimensions.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_runtime.environments.base import Environment
from gpu_runtime.protocol.schema import DatasetSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TryRules:
    """When a try is over besides what the environment itself says.

    ``steps_max`` cuts it off earlier than the environment would. Without ``ends_on_termination`` it goes on after
    success or failure until time is up, so that success at the end can differ from success once.
    """

    steps_max: int | None = None
    ends_on_termination: bool = True


class Slot:
    """Answers in the maps that ``results`` reads. ``schema`` names the cameras that are rendered, perhaps none."""

    def __init__(self, environment: Environment, schema: DatasetSchema) -> None:
        self.rules = TryRules()
        self._environment, self._schema = environment, schema
        self._success_step, self._steps = 0, 0

    def warm_up(self) -> None:
        """Let the first picture, which compiles shaders for seconds, be on nobody's clock."""
        self.reset(0)

    def reset(self, seed: int) -> dict[str, Any]:
        """Start a new try."""
        state_S = self._environment.reset(seed).state_S
        self._success_step, self._steps = 0, 0
        return {
            "observation": self._observation(state_S),
            "solved": self._environment.succeeded(),
            "initial_state": _identity(self._environment.snapshot()),
        }

    def step(self, actions_CA: np.ndarray) -> dict[str, Any]:
        """Take the actions one after the other until the try ends."""
        rewards_C = np.zeros(len(actions_CA), np.float32)
        for executed, action_A in enumerate(actions_CA, start=1):
            result = self._environment.step(action_A)
            rewards_C[executed - 1] = result.reward
            self._steps += 1
            if result.success and not self._success_step:
                self._success_step = self._steps
            terminated = result.terminated and self.rules.ends_on_termination
            truncated = not terminated and (result.truncated or self._steps == self.rules.steps_max)
            if terminated or truncated:
                break
        return {
            "rewards": rewards_C,
            "executed": executed,
            "terminated": terminated,
            "truncated": truncated,
            "success": result.success,
            "success_once": self._success_step > 0,
            "success_step": self._success_step,
            "observation": self._observation(result.observation.state_S),
        }

    def _observation(self, state_S: np.ndarray) -> dict[str, Any]:
        cameras = self._schema.cameras
        images = self._environment.render([camera.key for camera in cameras]) if cameras else {}
        upright = [np.rot90(images[camera.key], k=camera.rotation_deg // 90) for camera in cameras]
        return {"images": upright, "state": state_S, "instruction": self._environment.instruction}

    def close(self) -> None:
        """Free the simulator."""
        self._environment.close()


def _identity(snapshot_K: np.ndarray) -> str:
    """A short hash, equal for states that differ by rounding only (and by the sign of zero)."""
    rounded = np.round(snapshot_K.astype(np.float64), 5) + 0.0
    return hashlib.sha256(rounded.tobytes()).hexdigest()[:16]
