"""What gymnasium does not say about a registered id: words, names of its vectors, what success is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_runtime.protocol.schema import ActionRepresentation, Gripper, GripperConvention


def axes(name: str) -> tuple[str, ...]:
    """``name`` along x, y and z."""
    return tuple(f"{name}_{axis}" for axis in "xyz")


@dataclass(frozen=True, slots=True, kw_only=True)
class GymnasiumTask:
    """One id. Declared sizes are checked against the environment's own when it starts.

    ``package`` registers the id when imported. ``observation`` names all that the environment tells: its vector, or
    its dictionary's entries ``parts`` one after the other. ``ways`` are differences of two of these numbers, by
    their own name: (to, from). ``proprioception`` is what a policy with cameras gets, ``privileged`` (numbers or
    ways; none: there is no such state) what suffices without. ``view`` places MuJoCo's free camera.
    """

    package: str
    instruction: str
    observation: tuple[str, ...]
    proprioception: tuple[str, ...]
    action: tuple[str, ...]
    representation: ActionRepresentation
    control_hz: float
    robot_type: str
    parts: tuple[str, ...] = ()  # none: the observation is one vector
    success: str = "is_success"  # entry of ``info``; without it a step has no success
    gripper: Gripper | None = None
    ways: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    privileged: tuple[str, ...] = ()
    view: Mapping[str, Any] | None = None


def way(start: str, to: str) -> dict[str, tuple[str, str]]:
    """The way from one named point to another, along x, y and z."""
    return {f"{start}_to_{to}_{axis}": (f"{to}_{axis}", f"{start}_{axis}") for axis in "xyz"}


_FETCH_ACTION = (*axes("delta"), "gripper")
_FETCH_GRIPPER = Gripper(index=3, convention=GripperConvention.OPEN_POSITIVE)
_FINGERS, _FINGER_SPEEDS = ("right_finger", "left_finger"), ("right_finger_speed", "left_finger_speed")
_REACH_OBSERVATION = (*axes("gripper"), *_FINGERS, *axes("gripper_speed"), *_FINGER_SPEEDS, *axes("goal"))
_PUSH_OBSERVATION = (
    *axes("gripper"),
    *axes("object"),
    *axes("gripper_to_object"),
    *_FINGERS,
    *axes("object_angle"),
    *axes("object_speed"),
    *axes("object_turning"),
    *axes("gripper_speed"),
    *_FINGER_SPEEDS,
    *axes("goal"),
)

# From the front, so near that gripper and goal are told apart at 64 pixels.
_FETCH_VIEW = {"distance": 1.3, "azimuth": 180.0, "elevation": -30.0, "lookat": np.array([1.3, 0.75, 0.5])}

_TASKS = {
    "FetchReach-v4": GymnasiumTask(
        package="gymnasium_robotics",
        instruction="Move the gripper to the red point.",
        parts=("observation", "desired_goal"),
        observation=_REACH_OBSERVATION,
        proprioception=_REACH_OBSERVATION,  # the goal is drawn, and is part of what the robot is told
        ways=way("gripper", "goal"),
        privileged=(*axes("gripper"), *axes("goal"), *axes("gripper_to_goal")),
        action=_FETCH_ACTION,
        representation=ActionRepresentation.DELTA_EE_SCALED,
        control_hz=25.0,
        robot_type="fetch",
        gripper=_FETCH_GRIPPER,
        view=_FETCH_VIEW,
    ),
    "FetchPush-v4": GymnasiumTask(
        package="gymnasium_robotics",
        instruction="Push the block to the red point.",
        parts=("observation", "desired_goal"),
        observation=_PUSH_OBSERVATION,
        proprioception=(*axes("gripper"), *_FINGERS, *axes("gripper_speed"), *_FINGER_SPEEDS),
        ways=way("object", "goal"),
        privileged=(*axes("gripper"), *axes("object"), *axes("gripper_to_object"), *axes("object_to_goal")),
        action=_FETCH_ACTION,
        representation=ActionRepresentation.DELTA_EE_SCALED,
        control_hz=25.0,
        robot_type="fetch",
        gripper=_FETCH_GRIPPER,
        view=_FETCH_VIEW,
    ),
}

# Reward -1 away from the goal; the Dense twin of each pays minus the distance to it.
TASKS = _TASKS | {name.replace("-", "Dense-"): task for name, task in _TASKS.items()}
