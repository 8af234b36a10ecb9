"""A policy's state vector from what LIBERO tells, with one name per dimension.

Shapes: S state dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpu_runtime.environments.base import StateKind

STATE_KINDS = tuple(StateKind)
_AXES = "xyz"
# The 8 numbers of the published datasets: place and axis-angle of the tool, both fingers.
_PROPRIOCEPTION = (
    *(f"tool_{axis}" for axis in _AXES),
    *(f"tool_rotation_{axis}" for axis in _AXES),
    "left_finger",
    "right_finger",
)
_WHOLE = ("robot0_proprio-state", "object-state")


def state_names(kind: StateKind, told: Mapping[str, Any], objects: Sequence[str]) -> tuple[str, ...]:
    """Names in the order of ``state_of``; ``objects`` are those that the task is about."""
    match kind:
        case StateKind.PROPRIOCEPTION:
            return _PROPRIOCEPTION
        case StateKind.PRIVILEGED:
            places = [f"{name}_{axis}" for name in _movable(told, objects) for axis in _AXES]
            return (*_PROPRIOCEPTION, *places)
        case StateKind.FULL:
            return tuple(f"{part}_{index}" for part in _WHOLE for index in range(len(told[part])))


def state_of(kind: StateKind, told: Mapping[str, Any], objects: Sequence[str]) -> np.ndarray:
    """Float32 [S]. Privileged: proprioception, then where the movable objects of the task are."""
    if kind is StateKind.FULL:
        return np.concatenate([told[part] for part in _WHOLE]).astype(np.float32)
    parts = [told["robot0_eef_pos"], axis_angle(told["robot0_eef_quat"]), told["robot0_gripper_qpos"]]
    if kind is StateKind.PRIVILEGED:
        parts += [told[f"{name}_pos"] for name in _movable(told, objects)]
    return np.concatenate(parts).astype(np.float32)


def _movable(told: Mapping[str, Any], objects: Sequence[str]) -> list[str]:
    return [name for name in objects if f"{name}_pos" in told]


def axis_angle(quaternion: np.ndarray) -> np.ndarray:
    """Rotation vector [3] in radians, 0 to 2 pi long, of a unit quaternion (x, y, z, w): robosuite's convention."""
    w = float(np.clip(quaternion[3], -1.0, 1.0))
    sine = np.sqrt(1.0 - w * w)
    if sine < 1e-9:
        return np.zeros(3)
    return np.asarray(quaternion[:3]) * (2.0 * np.arccos(w) / sine)
