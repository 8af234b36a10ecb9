"""A ManiSkill robot's action, read off its controllers; of several robots one after the other.

Shapes: N worlds, A action dimensions of all robots.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_runtime.environments.base import ACTION_KEY
from gpu_runtime.environments.maniskill_tasks import REPRESENTATIONS
from gpu_runtime.protocol.schema import ActionRepresentation, Gripper, GripperConvention, VectorFeature

# Targets move on from the last target instead of from where the robot is; they mean the same change.
_TO_TARGETS = {mode.replace("_delta_", "_target_delta_"): mode for mode in REPRESENTATIONS if "_delta_" in mode}
CONTROL_MODES = (*REPRESENTATIONS, *_TO_TARGETS)

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


def agents_of(agent: Any) -> Mapping[str, Any]:
    """Every robot by a prefix for names: none for the only one."""
    several = getattr(agent, "agents", None)
    return {"": agent} if several is None else {f"robot{index}_": one for index, one in enumerate(several)}


def action_feature(agent: Any) -> VectorFeature:
    """One name per action dimension, in the order in which the controllers take them."""
    names = [
        prefix + name
        for prefix, one in agents_of(agent).items()
        for uid, part in _controllers(one).items()
        for name in _controller_names(uid, part)
    ]
    return VectorFeature(key=ACTION_KEY, names=tuple(names))


def representation_of(agent: Any) -> ActionRepresentation:
    """What the robot's control mode means; that of several robots where they agree."""
    modes = {one.control_mode for one in agents_of(agent).values()}
    mode = modes.pop() if len(modes) == 1 else ""
    return REPRESENTATIONS.get(_TO_TARGETS.get(mode, mode), ActionRepresentation.UNDECLARED)


def per_robot(agent: Any, actions_NA: np.ndarray) -> Any:
    """The actions as ManiSkill takes them: as they are for one robot, those of each by its id for several."""
    if not hasattr(agent, "agents"):
        return actions_NA
    dims = [one.single_action_space.shape[0] for one in agent.agents]
    return dict(zip(agent.agents_dict, np.split(actions_NA, np.cumsum(dims)[:-1], axis=1), strict=True))


def gripper_of(agent: Any) -> Gripper | None:
    """The gripper's dimension where it has exactly one; ManiSkill opens it with +1."""
    names = action_feature(agent).names
    if "gripper" not in names:
        return None
    return Gripper(index=names.index("gripper"), convention=GripperConvention.OPEN_POSITIVE)
