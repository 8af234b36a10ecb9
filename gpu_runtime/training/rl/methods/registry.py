"""Algorithms by the ``type`` a job asks for: the one place that knows them all."""

from collections.abc import Callable
from typing import Any

from gpu_runtime.protocol.algorithms import AlgorithmSpec
from gpu_runtime.training.rl.methods.base import Method
from gpu_runtime.training.rl.methods.decoupled_ppo import DecoupledPpoMethod
from gpu_runtime.training.rl.methods.grpo import GrpoMethod
from gpu_runtime.training.rl.methods.ppo import PpoMethod
from gpu_runtime.training.rl.methods.reinforce import ReinforceMethod

METHODS: dict[str, Callable[[Any], Method]] = {
    "decoupled_ppo": DecoupledPpoMethod,
    "grpo": GrpoMethod,
    "ppo": PpoMethod,
    "reinforce": ReinforceMethod,
}


def method_of(spec: AlgorithmSpec) -> Method:
    """The algorithm under these options. Raises OptionRefused."""
    return METHODS[spec.type](spec)
