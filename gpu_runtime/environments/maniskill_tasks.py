"""What ManiSkill itself does not say about a task: words, controller, which objects an expert and a policy may see."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_runtime.protocol.schema import ActionRepresentation

# Delta controllers take actions in [-1, 1]; ±1 is 0.1 m or 0.1 rad per step for the Panda's end effector.
REPRESENTATIONS = {
    "pd_ee_delta_pos": ActionRepresentation.DELTA_EE_SCALED,
    "pd_ee_delta_pose": ActionRepresentation.DELTA_EE_SCALED,
    "pd_ee_pose": ActionRepresentation.ABSOLUTE_EE,
    "pd_joint_delta_pos": ActionRepresentation.DELTA_JOINT,
    "pd_joint_pos": ActionRepresentation.ABSOLUTE_JOINT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManiSkillTask:
    """One task. ``objects`` maps a name to the attribute of the environment that holds the actor.

    ``state_objects`` are those whose position belongs to the policy's state: a goal that no camera can see.
    ``privileged`` is what a policy without cameras needs, in the terms of ``maniskill_state``.
    """

    instruction: str
    control_mode: str | None = None  # None: the robot's default
    cameras: tuple[str, ...] = ()  # none: all that the task has
    objects: Mapping[str, str] = field(default_factory=dict)
    state_objects: tuple[str, ...] = ()
    privileged: tuple[str, ...] = ()
    max_steps: int = 100


TASKS = {
    "PushCube-v1": ManiSkillTask(
        instruction="Push the blue cube onto the red and white target.",
        control_mode="pd_ee_delta_pos",
        cameras=("base",),
        objects={"cube": "obj", "goal": "goal_region"},
        privileged=("tcp", "cube", "cube-tcp"),  # the goal lies at a fixed offset from where the cube starts
    ),
    "PickCube-v1": ManiSkillTask(
        instruction="Pick up the red cube and hold it still at the goal position.",
        control_mode="pd_ee_delta_pose",
        cameras=("base", "hand"),
        objects={"cube": "cube", "goal": "goal_site"},
        state_objects=("goal",),  # ManiSkill hides the goal marker from the cameras
        privileged=("fingers", "is_grasped", "tcp", "cube-tcp", "cube@turn", "goal-cube", "goal-tcp"),
    ),
}

# Tasks whose worlds are all built alike, so that any of them can play any seed: nothing is drawn when they are built.
ALIKE = (*TASKS, "PullCube-v1", "StackCube-v1")


def task_of(env_id: str) -> ManiSkillTask:
    """The declared task, or what can be said of any: its name in words, the robot's own controller."""
    if env_id in TASKS:
        return TASKS[env_id]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", env_id.rpartition("-v")[0] or env_id)
    return ManiSkillTask(instruction=words.capitalize() + ".")


def may_share_a_process(env_id: str, control_mode: str | None) -> bool:
    """Whether many worlds of a task may be one environment without knowing of each other.

    ManiSkill resets the controllers of every world with those of one: where targets move on from the last target,
    another world's reset would be felt.
    """
    return env_id in ALIKE and "_target_" not in (control_mode or "")
