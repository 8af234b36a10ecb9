"""Flow-SDE: the random steps are those of the SDE that has the ODE's marginals.

Shapes: B samples, M chunks, H horizon, A action dims, W hidden width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from gpu_runtime.models.errors import HeadConfigurationError
from gpu_runtime.models.heads.density import Normal
from gpu_runtime.models.heads.flow_policy import FlowHead
from gpu_runtime.models.heads.flow_transitions import sde_step
from gpu_runtime.models.heads.gr00t import Gr00tHead
from gpu_runtime.models.heads.traces import Trace
from gpu_runtime.protocol.exploration import FlowSdeSpec


class FlowSdeHead(FlowHead):
    """No parameters of its own. Trace: also ``noise_level`` [B]; so the level may be annealed between rollouts."""

    std_is_learned = False
    noise_level: Tensor

    def __init__(self, spec: FlowSdeSpec, head: Gr00tHead, *, executed: int, explored_A: Tensor) -> None:
        super().__init__(head, steps=spec.steps, executed=executed, explored_A=explored_A)
        self.register_buffer("noise_level", torch.tensor(float(spec.noise_level)))

    def reset_parameters(self, generator: torch.Generator) -> None:
        return None

    def rollout_conditions(self, samples: int) -> Trace:
        return {"noise_level": self.noise_level.repeat(samples)}

    def anneal(self, noise_level: float) -> None:
        """The level of rollouts from now on; traces keep theirs. Raises HeadConfigurationError."""
        if not 0 <= noise_level <= 1:
            raise HeadConfigurationError(f"noise_level: {noise_level}, allowed: 0 to 1")
        self.noise_level.fill_(noise_level)

    def transition(
        self, x_MHA: Tensor, velocity_MHA: Tensor, hidden_MHW: Tensor, step_M: Tensor, conditions: Mapping[str, Tensor]
    ) -> Normal:
        level_M = conditions["noise_level"]
        return sde_step(x_MHA, velocity_MHA, step_M=step_M, level_M=level_M, steps=self.head.denoise_steps)
