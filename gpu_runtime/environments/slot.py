"""One environment inside a worker: chunks of actions, one picture per chunk, what happened since the reset.

Shapes: C actions of a chunk, A action dimensions, S state dimensions, K numbers of a snapshot.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_runtime.environments.base import Environment, StepResult
from gpu_runtime.protocol.schema import DatasetSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TryRules:
    """When a try is over besides what the environment itself says.

    ``steps_max`` cuts it off earlier than the environment would. Without ``ends_on_termination`` it goes on after
    success or failure until time is up, so that success at the end can differ from success once.
    """

    steps_max: int | None = None
    ends_on_termination: bool = True


class Try:
    """What happened in one world since its reset, so far."""

    def __init__(self) -> None:
        self.steps, self.success_step = 0, 0  # success_step: the count of steps up to the first success; 0: none yet


class Chunk:
    """``length`` actions of one try, taken one after the other until the try ends."""

    def __init__(self, played: Try, rules: TryRules, length: int) -> None:
        self._played, self._rules = played, rules
        self._rewards_C = np.zeros(length, np.float32)
        self._executed, self._success = 0, False
        self._terminated, self._truncated = False, False

    def take(self, result: StepResult) -> None:
        """Note what the next action led to."""
        self._rewards_C[self._executed] = result.reward
        self._executed += 1
        self._played.steps += 1
        if result.success and not self._played.success_step:
            self._played.success_step = self._played.steps
        self._success = result.success
        self._terminated = result.terminated and self._rules.ends_on_termination
        out_of_time = result.truncated or self._played.steps == self._rules.steps_max
        self._truncated = out_of_time and not self._terminated

    @property
    def ended(self) -> bool:
        """Whether the try is over: no further action may be taken."""
        return self._terminated or self._truncated

    def answer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """The map that ``results`` reads; ``observation`` is that after the last action taken."""
        return {
            "rewards": self._rewards_C,
            "executed": self._executed,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "success": self._success,
            "success_once": self._played.success_step > 0,
            "success_step": self._played.success_step,
            "observation": observation,
        }


class Slot:
    """Answers in the maps that ``results`` reads. ``schema`` names the cameras that are rendered, perhaps none."""

    def __init__(self, environment: Environment, schema: DatasetSchema) -> None:
        self.rules = TryRules()
        self._environment, self._schema = environment, schema
        self._played = Try()

    def warm_up(self) -> None:
        """Let the first picture, which compiles shaders for seconds, be on nobody's clock."""
        self.reset(0)

    def reset(self, seed: int) -> dict[str, Any]:
        """Start a new try."""
        state_S = self._environment.reset(seed).state_S
        self._played = Try()
        return reset_answer(
            self._observation(state_S), solved=self._environment.succeeded(), snapshot_K=self._environment.snapshot()
        )

    def step(self, actions_CA: np.ndarray) -> dict[str, Any]:
        """Take the actions one after the other until the try ends."""
        chunk = Chunk(self._played, self.rules, len(actions_CA))
        for action_A in actions_CA:
            result = self._environment.step(action_A)
            chunk.take(result)
            if chunk.ended:
                break
        return chunk.answer(self._observation(result.observation.state_S))

    def _observation(self, state_S: np.ndarray) -> dict[str, Any]:
        cameras = self._schema.cameras
        images = self._environment.render([camera.key for camera in cameras]) if cameras else {}
        return observation_of(self._schema, images, state_S, self._environment.instruction)

    def close(self) -> None:
        """Free the simulator."""
        self._environment.close()


def observation_of(
    schema: DatasetSchema, images: Mapping[str, np.ndarray], state_S: np.ndarray, instruction: str
) -> dict[str, Any]:
    """What a policy decides on, as ``results`` reads it: pictures uint8 [H, W, 3] are turned upright."""
    upright = [np.rot90(images[camera.key], k=camera.rotation_deg // 90) for camera in schema.cameras]
    return {"images": upright, "state": state_S, "instruction": instruction}


def reset_answer(observation: dict[str, Any], *, solved: bool, snapshot_K: np.ndarray) -> dict[str, Any]:
    """How a try begins, as ``results`` reads it."""
    return {"observation": observation, "solved": solved, "initial_state": _identity(snapshot_K)}


def _identity(snapshot_K: np.ndarray) -> str:
    """A short hash, equal for states that differ by rounding only (and by the sign of zero)."""
    rounded = np.round(snapshot_K.astype(np.float64), 5) + 0.0
    return hashlib.sha256(rounded.tobytes()).hexdigest()[:16]
