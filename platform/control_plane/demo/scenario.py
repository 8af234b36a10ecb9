"""Who takes part in the demo and what each asks for. Settings: those under which learning was measured to work."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BASE_MODEL = "tiny-qwen3-vl"
Options = Mapping[str, Any]
FRESH_SEED = 50_000  # evaluations count up from it; nobody demonstrates or trains there


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """What a scripted expert records; equal ones are recorded once."""

    environment: str
    cameras: str
    episodes: int
    state: str = "proprioception"
    image_size: int = 64  # pixels
    seed: int = 0

    @property
    def task(self) -> str:
        """The environment's name without its package."""
        return self.environment.rpartition("/")[2]

    @property
    def name(self) -> str:
        return f"{self.task}, {self.episodes} demonstrations, {self.state} state"

    @property
    def folder(self) -> str:
        """Everything that makes a recording what it is."""
        cameras = self.cameras.replace(",", "+")
        return f"{self.task}-{self.state}-{cameras}-{self.image_size}px-{self.episodes}ep-seed{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitation:
    """Supervised fine-tuning: ``training`` and ``optimizer`` of the job."""

    training: Options
    optimizer: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforcement:
    """Reinforcement learning: the parts of the job that are not the policy.

    ``environment``: the one to learn in where it is not the one of the evaluation, such as its twin with a denser
    reward.
    """

    algorithm: Options
    exploration: Options
    collection: Options
    training: Options
    optimizer: Options
    unexplored: tuple[str, ...] = ()
    environment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Participant:
    """A tenant of the demo. ``start`` makes the policy of "before", ``main`` the one of "after".

    ``selection``: what the policy sees. ``must_improve``: the demo fails unless success rises.
    """

    tenant: str
    email: str
    demonstrations: Demonstrations
    selection: Options
    head: Options
    start: Imitation
    main: Imitation | Reinforcement
    executed_steps: int
    max_steps: int
    must_improve: bool
    episodes: int = 50  # of each evaluation
    videos_before: int = 0  # per outcome; who sees no pictures is drawn for the film alone, which takes its time
    videos_after: int = 1

    @property
    def algorithm(self) -> str:
        return str(self.main.algorithm["type"]) if isinstance(self.main, Reinforcement) else "sft"

    @property
    def head_name(self) -> str:
        return str(self.head["type"])
