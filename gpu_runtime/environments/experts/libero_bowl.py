"""LIBERO's spatial suite: grasp the black bowl by its rim, lift it, carry it over the plate, let go.

Action [7] = delta xyz, rotation xyz, gripper.
"""

from collections.abc import Mapping

import numpy as np

_FULL_STEP_M = 0.05  # what an action of 1 asks for
_GAIN = 0.5  # of the way left; the arm overshoots beyond it
_OPEN, _CLOSED = -1.0, 1.0
_RIM = np.array([0.0, -0.05, 0.015])  # from the bowl's origin to where the fingers close, one inside, one outside
_HOVER_M = 0.1
_CARRY_M = 0.14  # above the plate
_RELEASE_M = 0.03
_WIDE_OPEN_M, _GRASPED_M = 0.075, 0.015  # between the fingers


def act(scene: Mapping[str, np.ndarray]) -> np.ndarray:
    """Action float32 [7] from the places of tool, ``akita_black_bowl_1`` and ``plate_1`` and the fingers."""
    tool, bowl, plate = scene["robot0_eef_pos"], scene["akita_black_bowl_1_pos"], scene["plate_1_pos"]
    width_m = float(np.ptp(scene["robot0_gripper_qpos"]))
    to_rim, to_plate = bowl + _RIM - tool, plate - bowl
    slack_m = 0.012 if width_m > _WIDE_OPEN_M else 0.035  # once they close, the fingers may slide along the rim
    is_at_rim = np.linalg.norm(to_rim[:2]) < 0.025 and abs(to_rim[2]) < slack_m
    if np.linalg.norm(to_plate[:2]) < 0.02 and is_at_rim:
        is_low = -to_plate[2] < _RELEASE_M
        return _action(np.zeros(3), _OPEN) if is_low else _action(np.array([*to_plate[:2], -0.03]), _CLOSED)
    if is_at_rim:
        if width_m > _GRASPED_M:
            return _action(np.zeros(3), _CLOSED)
        rise_m = _CARRY_M + to_plate[2]
        return _action(np.array([*(to_plate[:2] if rise_m < 0.03 else (0.0, 0.0)), rise_m]), _CLOSED)
    if np.linalg.norm(to_rim[:2]) < 0.01:
        return _action(to_rim, _OPEN)
    return _action(to_rim + np.array([0.0, 0.0, _HOVER_M]), _OPEN)


def _action(way_m: np.ndarray, gripper: float) -> np.ndarray:
    return np.array([*np.clip(_GAIN * way_m / _FULL_STEP_M, -1, 1), 0.0, 0.0, 0.0, gripper], np.float32)
