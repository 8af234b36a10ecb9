"""Names of a ManiSkill robot's action dimensions, read off its controllers."""

from typing import Any

from gpu_runtime.environments.base import ACTION_KEY
from gpu_runtime.protocol.schema import Gripper, GripperConvention, VectorFeature

SENSOR_SUFFIX = "_camera"  # ManiSkill's "base_camera" is our "base"
_POSITION = ("delta_x", "delta_y", "delta_z")
_AXES = ("x", "y", "z")


def _controller_names(uid: str, controller: Any) -> tuple[str, ...]:
    dim = controller.single_action_space.shape[0]
    kind = type(controller).__name__
    prefix = _POSITION if getattr(controller.config, "use_delta", False) else _AXES
    if kind == "PDEEPosController":
        return prefix
    if kind == "PDEEPoseController":
        return prefix + tuple(f"rotation_{axis}" for axis in _AXES)
    if dim == 1:
        return (uid,)
    joints = [joint.name for joint in controller.joints]
    return tuple(joints) if len(joints) == dim else tuple(f"{uid}_{index}" for index in range(dim))


def _controllers(agent: Any) -> dict[str, Any]:
    return getattr(agent.controller, "controllers", {"joint": agent.controller})


def action_feature(agent: Any) -> VectorFeature:
    """One name per action dimension, in the order in which the controllers take them."""
    names = [name for uid, part in _controllers(agent).items() for name in _controller_names(uid, part)]
    return VectorFeature(key=ACTION_KEY, names=tuple(names))


def gripper_of(agent: Any) -> Gripper | None:
    """The gripper's dimension where it has exactly one; ManiSkill opens it with +1."""
    names = action_feature(agent).names
    if "gripper" not in names:
        return None
    return Gripper(index=names.index("gripper"), convention=GripperConvention.OPEN_POSITIVE)
