"""FetchReach: towards the goal at walking pace, slower as it comes near.

Action [4] = delta xyz, gripper.
"""

from collections.abc import Mapping

import numpy as np

_FULL_STEP_M = 0.05  # what an action of 1 asks for
_SPEED_MAX = 0.3  # of the full step: at full speed a demonstration would be two frames long


def act(scene: Mapping[str, np.ndarray]) -> np.ndarray:
    """Action float32 [4] from the way ``gripper_to_goal_x``, ``_y``, ``_z`` in metres."""
    way_m = np.concatenate([scene[f"gripper_to_goal_{axis}"] for axis in "xyz"])
    return np.array([*np.clip(way_m / _FULL_STEP_M, -_SPEED_MAX, _SPEED_MAX), 0.0], np.float32)
