"""PickCube: turn to the cube's faces above it, go down, close, carry.

Action [7] = delta xyz, rotation xyz, gripper.
"""

from collections.abc import Mapping

import numpy as np

_FULL_STEP_M = 0.1  # what a translation of 1 asks for
_FULL_STEP_RAD = -0.1  # what a rotation of 1 asks for: ManiSkill scales it by its *lower* bound, which turns the sign
_HOVER_M = 0.08
_OPEN, _CLOSED = 1.0, -1.0
_GAIN = 1.6  # the arm covers about two thirds of what it is asked for in one step


def act(scene: Mapping[str, np.ndarray]) -> np.ndarray:
    """Action float32 [7] from the poses of ``tcp``, ``cube`` and ``goal`` and the flag ``is_grasped``."""
    tcp, cube, goal = scene["tcp"], scene["cube"], scene["goal"]
    turn = _turn_to_faces(tcp[3:], cube[3:])
    above = cube[:3] - tcp[:3]
    if scene["is_grasped"]:
        upright = turn * (1.0, 1.0, 0.0)  # the cube turns along: turning towards it would never end
        return _action(goal[:3] - cube[:3], upright, _CLOSED)
    if np.linalg.norm(above[:2]) < 0.01 and abs(above[2]) < 0.012:
        return _action(above, turn, _CLOSED)
    if np.linalg.norm(above[:2]) < 0.02 and abs(turn[2]) < 0.2:
        return _action(above, turn, _OPEN)
    return _action(above + np.array([0.0, 0.0, _HOVER_M]), turn, _OPEN)


def _action(delta_m: np.ndarray, turn_rad: np.ndarray, gripper: float) -> np.ndarray:
    move = np.clip(_GAIN * delta_m / _FULL_STEP_M, -1, 1)
    turn = turn_rad / _FULL_STEP_RAD
    return np.array([*move, *(turn / max(1.0, float(np.linalg.norm(turn)))), gripper], np.float32)


def _turn_to_faces(tool: np.ndarray, cube: np.ndarray) -> np.ndarray:
    """Rotation vector [3] in radians that points the tool down and its fingers at two faces, by the shorter way."""
    rotation = _matrix(tool)
    pointing, opening = rotation[:, 2], rotation[:, 1]
    tilt = np.cross(pointing, np.array([0.0, 0.0, -1.0]))
    face = _matrix(cube)[:, 0]
    yaw = np.arctan2(face[1], face[0]) - np.arctan2(opening[1], opening[0])
    yaw = (yaw + np.pi / 4) % (np.pi / 2) - np.pi / 4
    return np.array([tilt[0], tilt[1], yaw])


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    """Rotation matrix [3, 3] of a unit quaternion (w, x, y, z)."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
