"""PushT: choose the spot on the T whose push helps most, walk round to it, push it as far as it helps.

The contact has no friction and the block stops when nobody pushes, so a push through a spot moves the block in one
known direction (x, y, angle), whatever the speed. With the T's error ``e`` in that space and a metric in which the
mass is 1 and the inertia is ``_GYRATION**2``, the best push through spot ``p`` along inward normal ``n`` has depth
``s = e_xy . n + e_angle * (r x n)`` and takes ``s**2 / (1 + ((r x n) / _GYRATION)**2)`` off ``|e|**2``.

All geometry is in the block's own frame. Shapes: P spots, V nodes of the path round the block.
"""

from collections.abc import Mapping

import numpy as np

_RADIUS = 15.0  # of the round agent
_BOXES = np.array([[-60.0, 0.0, 60.0, 30.0], [-15.0, 30.0, 15.0, 120.0]])  # bar and stem: x0, y0, x1, y1
_CENTRE = np.array([0.0, 45.0])  # of mass
_GYRATION = np.sqrt(3000.0)  # inertia 3000, mass 1
_TABLE = 512.0
_CLEARANCE = 2.0  # a path keeps the agent at least this far from the block
_TRAVEL_PRICE = 0.02  # of one unit of path, in units of error taken off; dearer, and small errors are never mended
_ALIGNED = 3.0  # sideways distance from a spot's line within which a push may start
_OVERPUSH = 1.0  # aimed beyond the depth: the last units of a controlled move take the longest


def _spots() -> tuple[np.ndarray, np.ndarray]:
    """Where the agent can push: points on the outline and inward normals, both [P, 2]."""
    faces = [  # from, to, inward normal; kept off outer corners by 4 and out of inner corners by the agent's radius
        ((-56, 0), (56, 0), (0, 1)),
        ((-60, 4), (-60, 26), (1, 0)),
        ((60, 4), (60, 26), (-1, 0)),
        ((-56, 30), (-34, 30), (0, -1)),
        ((34, 30), (56, 30), (0, -1)),
        ((-15, 49), (-15, 116), (1, 0)),
        ((15, 49), (15, 116), (-1, 0)),
        ((-11, 120), (11, 120), (0, -1)),
    ]
    points, normals = [], []
    for start, end, normal in faces:
        first, last = np.array(start, float), np.array(end, float)
        count = int(np.linalg.norm(last - first) // 6) + 1
        points.append(np.linspace(first, last, count))
        normals.append(np.tile(np.array(normal, float), (count, 1)))
    return np.concatenate(points), np.concatenate(normals)


_SPOTS_P2, _NORMALS_P2 = _spots()
_ARM_P2 = _SPOTS_P2 - _CENTRE
_LEVER_P = _ARM_P2[:, 0] * _NORMALS_P2[:, 1] - _ARM_P2[:, 1] * _NORMALS_P2[:, 0]
_STIFFNESS_P = 1 + (_LEVER_P / _GYRATION) ** 2
_STANDS_P2 = _SPOTS_P2 - _NORMALS_P2 * (_RADIUS + 3 * _CLEARANCE)  # where a push through a spot begins
_REACH = _RADIUS + 3 * _CLEARANCE
_CORNERS_V2 = np.array(
    [
        [-60 - _REACH, -_REACH],
        [60 + _REACH, -_REACH],
        [60 + _REACH, 30 + _REACH],
        [-60 - _REACH, 30 + _REACH],
        [15 + _REACH, 120 + _REACH],
        [-15 - _REACH, 120 + _REACH],
    ]
)


def act(scene: Mapping[str, np.ndarray]) -> np.ndarray:
    """Action float32 [2], the point the agent is drawn to, from ``agent``, ``block`` and ``goal``."""
    block, goal = scene["block"], scene["goal"]
    turn = _rotation(block[2])
    agent = (scene["agent"] - block[:2]) @ turn
    angle = (goal[2] - block[2] + np.pi) % (2 * np.pi) - np.pi
    shift = ((goal[:2] + _rotation(goal[2]) @ _CENTRE) - (block[:2] + turn @ _CENTRE)) @ turn
    depth_P = _NORMALS_P2 @ shift + _LEVER_P * angle
    paths_PV = _path_lengths(agent)
    helps_P = np.where(depth_P > 0, depth_P / np.sqrt(_STIFFNESS_P), -np.inf)
    helps_P[~_on_table(_STANDS_P2 @ turn.T + block[:2])] = -np.inf
    best = int(np.argmax(helps_P - _TRAVEL_PRICE * paths_PV))
    target = _move(agent, best, depth_P[best])
    return np.clip(block[:2] + turn @ target, 0, _TABLE).astype(np.float32)


def _rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _on_table(points_P2: np.ndarray) -> np.ndarray:
    margin = _RADIUS + 7
    return np.all((points_P2 > margin) & (points_P2 < _TABLE - margin), axis=1)


def _behind(agent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per spot: distance from the agent's rim to the face, and sideways from the spot's line; [P]."""
    offset_P2 = _SPOTS_P2 - agent
    ahead_P = (offset_P2 * _NORMALS_P2).sum(axis=1)
    sideways_P = np.abs(offset_P2[:, 0] * _NORMALS_P2[:, 1] - offset_P2[:, 1] * _NORMALS_P2[:, 0])
    return ahead_P - _RADIUS, sideways_P


def _is_ready(agent: np.ndarray) -> np.ndarray:
    gap_P, sideways_P = _behind(agent)
    return (sideways_P < _ALIGNED) & (gap_P > -4) & (gap_P < 4 * _CLEARANCE)


def _hits(start_2: np.ndarray, ends_N2: np.ndarray) -> np.ndarray:
    """Which straight moves from ``start`` to ``ends`` would touch the block; [N]."""
    grown = _BOXES + np.array([-1, -1, 1, 1]) * (_RADIUS + _CLEARANCE)
    step_N2 = ends_N2 - start_2
    step_N2 = np.where(np.abs(step_N2) < 1e-9, 1e-9, step_N2)
    hit_N = np.zeros(len(ends_N2), bool)
    for box in grown:
        near, far = (box[:2] - start_2) / step_N2, (box[2:] - start_2) / step_N2
        enter, leave = np.minimum(near, far).max(axis=1), np.maximum(near, far).min(axis=1)
        hit_N |= (enter < leave) & (leave > 0) & (enter < 1)
    return hit_N


def _distances(start_2: np.ndarray, ends_N2: np.ndarray) -> np.ndarray:
    """Straight distances, infinite where the block is in the way; [N]."""
    straight_N = np.linalg.norm(ends_N2 - start_2, axis=1)
    return np.where(_hits(start_2, ends_N2), np.inf, straight_N)


def _corner_paths() -> np.ndarray:
    """Shortest way between every two corners, round the block; [V, V]."""
    ways_VV = np.stack([_distances(corner, _CORNERS_V2) for corner in _CORNERS_V2])
    np.fill_diagonal(ways_VV, 0.0)
    for middle in range(len(_CORNERS_V2)):
        ways_VV = np.minimum(ways_VV, ways_VV[:, middle : middle + 1] + ways_VV[middle : middle + 1])
    return ways_VV


_CORNER_WAYS_VV = _corner_paths()
_CORNER_TO_STAND_VP = np.stack([_distances(corner, _STANDS_P2) for corner in _CORNERS_V2])
_CORNER_TO_STAND_VP = (_CORNER_WAYS_VV[:, :, None] + _CORNER_TO_STAND_VP[None]).min(axis=1)


def _clear_of_block(agent: np.ndarray) -> np.ndarray:
    """The nearest point at which the agent is free to walk; ``agent`` itself where it is."""
    grown = _BOXES + np.array([-1, -1, 1, 1]) * (_RADIUS + 1.5 * _CLEARANCE)
    point = agent.copy()
    for _ in range(2):
        for x0, y0, x1, y1 in grown:
            if x0 < point[0] < x1 and y0 < point[1] < y1:
                exits = np.array([[x0, point[1]], [x1, point[1]], [point[0], y0], [point[0], y1]])
                point = exits[np.argmin(np.linalg.norm(exits - point, axis=1))]
    return point


def _path_lengths(agent: np.ndarray) -> np.ndarray:
    """How far the agent has to walk to each spot; [P]. Nothing where it is ready to push."""
    start = _clear_of_block(agent)
    straight_P = _distances(start, _STANDS_P2)
    round_P = (_distances(start, _CORNERS_V2)[:, None] + _CORNER_TO_STAND_VP).min(axis=0)
    return np.where(_is_ready(agent), 0.0, np.minimum(straight_P, round_P) + np.linalg.norm(start - agent))


def _move(agent: np.ndarray, spot: int, depth: float) -> np.ndarray:
    """Where to go next for a push of ``depth`` through ``spot``."""
    if _is_ready(agent)[spot]:
        return _SPOTS_P2[spot] + _NORMALS_P2[spot] * (depth + _OVERPUSH - _RADIUS)
    start = _clear_of_block(agent)
    if np.linalg.norm(start - agent) > 1e-6:
        return start + (start - agent) / np.linalg.norm(start - agent) * 3 * _CLEARANCE
    if np.isfinite(_distances(start, _STANDS_P2[spot : spot + 1]))[0]:
        return _STANDS_P2[spot]
    ways_V = _distances(start, _CORNERS_V2) + _CORNER_TO_STAND_VP[:, spot]
    return _CORNERS_V2[int(np.argmin(ways_V))]
