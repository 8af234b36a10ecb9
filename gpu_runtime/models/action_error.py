"""How far predicted actions are from demonstrated ones, in the units of the robot.

Shapes: B samples, H horizon, A action dims.
"""

from dataclasses import dataclass

import numpy as np

from gpu_runtime.models.errors import BatchMismatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActionError:
    """Sums over valid chunk steps, so that partitions of an evaluation add up exactly to the whole.

    ``baseline_A`` is the same sum for a policy that always predicts the training data's mean action.
    """

    names: tuple[str, ...]
    absolute_A: np.ndarray
    baseline_A: np.ndarray
    steps: int

    @classmethod
    def measure(
        cls,
        *,
        names: tuple[str, ...],
        predicted_BHA: np.ndarray,
        actual_BHA: np.ndarray,
        mask_BH: np.ndarray,
        mean_action_A: np.ndarray,
    ) -> "ActionError":
        """Absolute errors over steps where ``mask_BH`` is True."""
        actual_NA = actual_BHA[mask_BH].astype(np.float64)
        return cls(
            names=names,
            absolute_A=np.abs(predicted_BHA[mask_BH] - actual_NA).sum(axis=0),
            baseline_A=np.abs(mean_action_A - actual_NA).sum(axis=0),
            steps=int(mask_BH.sum()),
        )

    def __add__(self, other: "ActionError") -> "ActionError":
        if self.names != other.names:
            raise BatchMismatch(f"action errors of {list(other.names)} cannot be added to those of {list(self.names)}")
        return ActionError(
            names=self.names,
            absolute_A=self.absolute_A + other.absolute_A,
            baseline_A=self.baseline_A + other.baseline_A,
            steps=self.steps + other.steps,
        )

    @property
    def mean(self) -> float:
        """Mean absolute error over steps and dimensions, in real units."""
        return float(self.absolute_A.mean() / self.steps)

    @property
    def baseline_mean(self) -> float:
        """The same for the mean action."""
        return float(self.baseline_A.mean() / self.steps)

    def metrics(self) -> dict[str, float]:
        """``action_error``, ``baseline_error`` and ``action_error/<dimension>``."""
        per_dimension = zip(self.names, self.absolute_A / self.steps, strict=True)
        return {"action_error": self.mean, "baseline_error": self.baseline_mean} | {
            f"action_error/{name}": float(value) for name, value in per_dimension
        }
