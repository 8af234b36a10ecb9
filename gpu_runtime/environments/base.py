"""What every simulated environment offers, whichever simulator is behind it.

Shapes: H height, W width in pixels; S state dimensions, A action dimensions, K numbers of a snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from gpu_runtime.environments.errors import UnknownCamera, UnknownOption, WrongAction
from gpu_runtime.protocol.camera_names import IMAGE_PREFIX as IMAGE_PREFIX
from gpu_runtime.protocol.schema import Camera, DatasetSchema

STATE_KEY = "observation.state"
ACTION_KEY = "action"
SIZE_MIN, SIZE_MAX = 16, 1024  # height and width of an image in pixels


class StateKind(StrEnum):
    """What a policy's state vector tells."""

    PROPRIOCEPTION = "proprioception"  # what the robot knows of itself, and goals that no camera can see
    PRIVILEGED = "privileged"  # true positions that suffice to solve the task without cameras, chosen by hand
    FULL = "full"  # all that the simulator offers


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentKind:
    """What makes two environments exchangeable.

    ``cameras`` are short names such as ``base``: None for the task's usual ones, () for none. Images are square, of
    ``size`` pixels. ``control_mode``: None for the task's usual one. ``exact``: the same seed and actions lead to the
    same end bit for bit whatever was played before, though resets may take much longer; most environments always are.
    """

    env_id: str
    cameras: tuple[str, ...] | None = None
    size: int = 64
    state: StateKind = StateKind.PROPRIOCEPTION
    control_mode: str | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proprioception:
    """What a policy is given besides images: float32 [S] in the schema's order."""

    state_S: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one action led to. ``terminated`` ends the task, ``truncated`` only this try of it: time is up.

    A task that ends with its last step may be both; sessions then say terminated only.
    """

    observation: Proprioception
    reward: float
    terminated: bool
    truncated: bool
    success: bool


class Environment(Protocol):
    """One simulated world of one task. Images are rendered on demand, so that steps nobody looks at stay cheap."""

    @property
    def env_id(self) -> str: ...

    @property
    def instruction(self) -> str:
        """The task in words, as a policy is told it."""
        ...

    @property
    def max_steps(self) -> int | None:
        """Steps after which the environment itself cuts a try off; None: it never does."""
        ...

    def schema(self) -> DatasetSchema:
        """Cameras, state and action of this environment: what a dataset recorded here declares."""
        ...

    def reset(self, seed: int) -> Proprioception:
        """Start a new try; the same seed starts the same one."""
        ...

    def step(self, action_A: np.ndarray) -> StepResult:
        """Apply one action for one control period."""
        ...

    def succeeded(self) -> bool:
        """Whether the task is solved in the present state (a reset may solve it by luck)."""
        ...

    def privileged(self) -> Mapping[str, np.ndarray]:
        """True poses of the world's objects, for scripted experts; no policy sees them."""
        ...

    def snapshot(self) -> np.ndarray:
        """The world's whole state, [K]."""
        ...

    def restore(self, snapshot_K: np.ndarray) -> None:
        """Put the world back into ``snapshot``'s state; needs an earlier reset with the same seed."""
        ...

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Images uint8 [H, W, 3] of the present state by camera key; of the schema's cameras unless named."""
        ...

    def close(self) -> None: ...


def camera_of(name: str, size: int) -> Camera:
    """The schema entry of a square view."""
    return Camera(key=IMAGE_PREFIX + name, height=size, width=size)


def without_cameras(schema: DatasetSchema) -> DatasetSchema:
    """The same environment for whoever looks at nothing: a policy that is told its state only."""
    return schema.model_copy(update={"cameras": ()})


def check_cameras(env_id: str, wanted: Sequence[str], available: Sequence[str]) -> None:
    """Refuse cameras that the environment does not have, naming those it has."""
    for name in wanted:
        if name not in available:
            raise UnknownCamera(f"cameras: {env_id} has no camera {name!r}; allowed: {', '.join(available)}")
    if len(set(wanted)) != len(wanted):
        raise UnknownCamera(f"cameras: {', '.join(wanted)} names a camera twice")


def check_options(kind: EnvironmentKind, *, states: Sequence[StateKind], control_modes: Sequence[str] = ()) -> None:
    """Refuse an image size, a kind of state or a control mode that there is not, naming what is allowed."""
    if not SIZE_MIN <= kind.size <= SIZE_MAX:
        raise UnknownOption(f"size: {kind.size} pixels; allowed: {SIZE_MIN} to {SIZE_MAX}")
    if kind.state not in states:
        raise UnknownOption(f"state: {kind.env_id} has no {kind.state.value!r}; allowed: {', '.join(states)}")
    if kind.control_mode is not None and kind.control_mode not in control_modes:
        allowed = ", ".join(control_modes) or "none: it has one only"
        raise UnknownOption(f"control_mode: {kind.env_id} has no {kind.control_mode!r}; allowed: {allowed}")


def check_action(action_A: np.ndarray, schema: DatasetSchema) -> np.ndarray:
    """The action as float32 [A]; refuses another size and values that are not finite."""
    action = np.asarray(action_A, np.float32)
    if action.shape != (schema.action.dim,):
        raise WrongAction(f"action has shape {action.shape}; it must be ({schema.action.dim},): {schema.action.names}")
    if not np.isfinite(action).all():
        raise WrongAction(f"action is {action.tolist()}; every value must be finite")
    return action
