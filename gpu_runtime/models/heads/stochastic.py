"""Stochastic policies by the exploration a job asks for.

Shapes: A action dims.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gpu_runtime.models.errors import HeadConfigurationError
from gpu_runtime.models.heads.base import Head, StochasticHead
from gpu_runtime.models.heads.flow_noise import FlowNoiseHead
from gpu_runtime.models.heads.flow_sde import FlowSdeHead
from gpu_runtime.models.heads.gaussian import GaussianHead
from gpu_runtime.protocol.exploration import ExplorationSpec

STOCHASTIC_HEADS: dict[str, Callable[..., StochasticHead]] = {
    "flow_noise": FlowNoiseHead,
    "flow_sde": FlowSdeHead,
    "gaussian": GaussianHead,
}


def build_stochastic_head(
    spec: ExplorationSpec, head: Head, *, executed: int, explored_A: Tensor, generator: torch.Generator
) -> StochasticHead:
    """Exploration around ``head`` (shared, not copied). Raises HeadConfigurationError where it does not apply."""
    if spec.type not in head.explorations:
        raise HeadConfigurationError(f"exploration.type: {spec.type!r}, allowed: {list(head.explorations)}")
    stochastic = STOCHASTIC_HEADS[spec.type](spec, head, executed=executed, explored_A=explored_A)
    stochastic.reset_parameters(generator)
    return stochastic
