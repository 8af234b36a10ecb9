"""A policy's state vector, read off a ManiSkill world part by part, with one name per dimension.

Terms of a privileged state: ``tcp`` or an object for its position, ``a-b`` for the way from b to a, ``a@turn`` for
the angle by which the tool must turn until its fingers face two sides of the box a, ``fingers`` for the last two
joints, any other word for a flag of the task. Shapes: N worlds, S state dimensions, D those of one part.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_runtime.environments.base import STATE_KEY, StateKind
from gpu_runtime.environments.maniskill_schema import agents_of
from gpu_runtime.environments.maniskill_tasks import ManiSkillTask
from gpu_runtime.protocol.schema import VectorFeature

_AXES = ("x", "y", "z")
_FINGERS = 2


@dataclass(frozen=True, slots=True)
class Part:
    """Some dimensions: their names, and how to read them now, [N, D]."""

    names: tuple[str, ...]
    read: Callable[[], np.ndarray]


class StateReader:
    """Reads the state of one kind in all worlds. ``flags`` gives the task's flags of the present state, [N] each."""

    def __init__(
        self, world: Any, task: ManiSkillTask, kind: StateKind, flags: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._world, self._task, self._flags = world, task, flags
        self._robots = [agent.robot for agent in agents_of(world.agent).values()]
        self._joints = tuple(
            prefix + joint.name
            for prefix, agent in agents_of(world.agent).items()
            for joint in agent.robot.get_active_joints()
        )
        self._parts = {
            StateKind.PROPRIOCEPTION: self._proprioception,
            StateKind.PRIVILEGED: lambda: [self._part(term) for term in task.privileged],
            StateKind.FULL: self._full,
        }[kind]()

    def feature(self) -> VectorFeature:
        """Names in the order of ``read``."""
        return VectorFeature(key=STATE_KEY, names=tuple(name for part in self._parts for name in part.names))

    def read(self) -> np.ndarray:
        """Float32 [N, S]."""
        return np.concatenate([part.read() for part in self._parts], axis=1).astype(np.float32)

    def _proprioception(self) -> list[Part]:
        """Joint positions, the tool's position where the robot has a tool, then objects that no camera can see."""
        tool = ["tcp"] if hasattr(self._world.agent, "tcp") else []
        return [Part(self._joints, self._qpos)] + [self._part(term) for term in [*tool, *self._task.state_objects]]

    def _full(self) -> list[Part]:
        def read() -> np.ndarray:
            return _numbers(self._world.get_obs())

        return [Part(tuple(f"state_{index}" for index in range(read().shape[1])), read)]

    def _part(self, term: str) -> Part:
        if term == "fingers":
            return Part(self._joints[-_FINGERS:], lambda: self._qpos()[:, -_FINGERS:])
        box, _, is_turn = term.partition("@")
        if is_turn:
            return Part((f"{box}_turn",), lambda: self._turn(box))
        to, _, start = term.partition("-")
        if to != "tcp" and to not in self._task.objects:
            return Part((term,), lambda: self._flags()[term][:, None])
        if start:
            names = tuple(f"{start}_to_{to}_{axis}" for axis in _AXES)
            return Part(names, lambda: self._position(to) - self._position(start))
        return Part(tuple(f"{to}_{axis}" for axis in _AXES), lambda: self._position(to))

    def _qpos(self) -> np.ndarray:
        return np.concatenate([_numbers(robot.get_qpos()) for robot in self._robots], axis=1)

    def _position(self, name: str) -> np.ndarray:
        return _numbers(self._actor(name).pose.p)

    def _turn(self, box: str) -> np.ndarray:
        """About the vertical, radians within a quarter turn, [N, 1]: two opposite sides of a box are alike."""
        sides_N2, fingers_N2 = (
            _numbers(self._actor(name).pose.to_transformation_matrix()[:, :2, axis])
            for name, axis in ((box, 0), ("tcp", 1))  # a box's side looks along x, the tool opens along y
        )
        turn_N = np.arctan2(sides_N2[:, 1], sides_N2[:, 0]) - np.arctan2(fingers_N2[:, 1], fingers_N2[:, 0])
        within_N: np.ndarray = (turn_N + np.pi / 4) % (np.pi / 2) - np.pi / 4
        return within_N[:, None]

    def _actor(self, name: str) -> Any:
        return self._world.agent.tcp if name == "tcp" else getattr(self._world, self._task.objects[name])


def _numbers(values: Any) -> np.ndarray:
    """A tensor of any device as an array."""
    numbers: np.ndarray = values.cpu().numpy()
    return numbers
