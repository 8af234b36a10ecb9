"""PushCube with a closed gripper: over the cube, down behind it, forward.

Action [4] = delta xyz, gripper.
"""

from collections.abc import Mapping

import numpy as np

_FULL_STEP_M = 0.1  # what an action of 1 asks for
_BEHIND_M = 0.055  # from the cube's centre back to where the tool comes down
_TRAVEL_HEIGHT_M = 0.09
_PUSH_HEIGHT_M = 0.02
_SPEED_MAX = 0.6  # of the full step: a slower push is more frames and keeps the cube in front of the tool


def act(scene: Mapping[str, np.ndarray]) -> np.ndarray:
    """Action float32 [4] from the poses of ``tcp``, ``cube`` and ``goal``."""
    tcp, cube, goal = scene["tcp"][:3], scene["cube"][:3], scene["goal"][:3]
    behind = cube[:2] - np.array([_BEHIND_M, 0.0])
    is_low = tcp[2] < _PUSH_HEIGHT_M + 0.03
    is_behind = tcp[0] < cube[0] - 0.025 and abs(tcp[1] - cube[1]) < 0.015
    if is_low and is_behind:
        target = np.array([tcp[0] + max(goal[0] - cube[0], 0.03), cube[1], _PUSH_HEIGHT_M])
    elif np.linalg.norm(tcp[:2] - behind) < 0.02:
        target = np.array([*behind, _PUSH_HEIGHT_M])
    else:
        target = np.array([*behind, _TRAVEL_HEIGHT_M])
    delta = np.clip((target - tcp) / _FULL_STEP_M, -_SPEED_MAX, _SPEED_MAX)
    return np.array([*delta, -1.0], np.float32)
