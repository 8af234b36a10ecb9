"""What gymnasium does not say about a registered id: words, names of its vectors, what success is."""

from dataclasses import dataclass

from gpu_runtime.protocol.schema import ActionRepresentation, Gripper, GripperConvention


def axes(name: str) -> tuple[str, ...]:
    """``name`` along x, y and z."""
    return tuple(f"{name}_{axis}" for axis in "xyz")


@dataclass(frozen=True, slots=True, kw_only=True)
class GymnasiumTask:
    """One id. Declared sizes are checked against the environment's own when it starts.

    ``package`` registers the id when imported. ``observation`` names all that the environment tells: its vector, or
    its dictionary's entries ``parts`` one after the other. ``proprioception`` are those a policy with cameras gets.
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

TASKS = {
    "FetchReach-v4": GymnasiumTask(
        package="gymnasium_robotics",
        instruction="Move the gripper to the red point.",
        parts=("observation", "desired_goal"),
        observation=_REACH_OBSERVATION,
        proprioception=_REACH_OBSERVATION,
        action=_FETCH_ACTION,
        representation=ActionRepresentation.DELTA_EE_SCALED,
        control_hz=25.0,
        robot_type="fetch",
        gripper=_FETCH_GRIPPER,
    ),
    "FetchPush-v4": GymnasiumTask(
        package="gymnasium_robotics",
        instruction="Push the block to the red point.",
        parts=("observation", "desired_goal"),
        observation=_PUSH_OBSERVATION,
        proprioception=(*axes("gripper"), *_FINGERS, *axes("gripper_speed"), *_FINGER_SPEEDS),
        action=_FETCH_ACTION,
        representation=ActionRepresentation.DELTA_EE_SCALED,
        control_hz=25.0,
        robot_type="fetch",
        gripper=_FETCH_GRIPPER,
    ),
}
