"""Scripted controllers that solve a task from true poses. Each is Markov: the present state alone decides.

Cloning a controller with hidden phases or noise would ask a policy to predict what it cannot see.
"""

from collections.abc import Callable, Mapping

import numpy as np

from gpu_runtime.environments.errors import NoExpert
from gpu_runtime.environments.experts import fetch_reach, libero_bowl, pick_cube, push_cube, push_t, reach

Expert = Callable[[Mapping[str, np.ndarray]], np.ndarray]  # Environment.privileged() -> action float32 [A]

# A new expert is one file here and one line.
EXPERTS: Mapping[str, Expert] = {
    "PushCube-v1": push_cube.act,
    "PickCube-v1": pick_cube.act,
    "gym_pusht/PushT-v0": push_t.act,
    "joynexus/Reach-v0": reach.act,
    "gymnasium/FetchReach-v4": fetch_reach.act,
    "gymnasium/FetchReachDense-v4": fetch_reach.act,
    **{f"libero_spatial/{task}": libero_bowl.act for task in (0, 1, 2, 3, 5, 7, 8)},  # not out of drawers
}


def expert_for(env_id: str) -> Expert:
    """The controller of ``env_id``; NoExpert names those that exist."""
    if env_id not in EXPERTS:
        raise NoExpert(f"env: nobody wrote a scripted expert for {env_id!r}; allowed: {', '.join(EXPERTS)}")
    return EXPERTS[env_id]
