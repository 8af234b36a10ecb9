"""What an environment offers that holds many worlds of one task in one process and moves them all at once.

Shapes: N worlds, A action dimensions, K numbers of a snapshot; H height, W width in pixels.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from gpu_runtime.environments.base import Proprioception, StepResult
from gpu_runtime.protocol.schema import DatasetSchema


class VectorEnvironment(Protocol):
    """N worlds, numbered from 0, each with a try of its own; otherwise as ``base.Environment``."""

    @property
    def count(self) -> int: ...

    @property
    def instruction(self) -> str: ...

    @property
    def max_steps(self) -> int | None: ...

    def schema(self) -> DatasetSchema: ...

    def reset(self, seeds: Mapping[int, int]) -> dict[int, Proprioception]:
        """Start new tries in some worlds: the same seed starts the same one in any world, beside any others."""
        ...

    def step(self, actions_NA: np.ndarray, active_N: np.ndarray) -> dict[int, StepResult]:
        """One action in every active world. The others are afterwards as they were, whatever stands in their rows."""
        ...

    def succeeded(self) -> np.ndarray:
        """Whether the task is solved in the present state, bool [N]."""
        ...

    def snapshots(self) -> np.ndarray:
        """The whole state of every world, [N, K]."""
        ...

    def render(self, worlds: Sequence[int], cameras: Sequence[str]) -> dict[str, np.ndarray]:
        """Images uint8 [len(worlds), H, W, 3] of the present state by camera key."""
        ...

    def close(self) -> None: ...
