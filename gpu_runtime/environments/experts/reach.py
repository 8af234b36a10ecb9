"""Reach: straight to the goal, as fast as allowed on each axis."""

from collections.abc import Mapping

import numpy as np

from gpu_runtime.environments.reach import SPEED


def act(scene: Mapping[str, np.ndarray]) -> np.ndarray:
    """Action float32 [2] from ``position`` and ``goal``."""
    return np.clip((scene["goal"] - scene["position"]) / SPEED, -1.0, 1.0).astype(np.float32)
