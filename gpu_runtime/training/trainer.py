"""Who makes the training steps of a group once the features are there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpu_runtime.training.member import Features, Member

_NAMES = {"learning_rate": "lr"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learner:
    """A member of the group that trains, with the features of all its samples."""

    member: Member
    features: Features

    def report(self, found: dict[str, float]) -> None:
        """Keep a step's metrics by their full names."""
        self.member.metrics = {f"train/{_NAMES.get(name, name)}": float(value) for name, value in found.items()}


class Trainer(Protocol):
    """One way to train some of a group's members together. Their faults and their time are noted on each member."""

    def train(self, learners: Sequence[Learner]) -> None: ...
