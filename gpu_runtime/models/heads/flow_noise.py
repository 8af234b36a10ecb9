"""Flow-noise: a random step is the ODE's plus normal noise whose std a small network learns.

Shapes: M chunks, H horizon, A action dims, W hidden width.
"""

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gpu_runtime.models.heads import flow
from gpu_runtime.models.heads.base import initialize, initialize_output
from gpu_runtime.models.heads.density import Normal
from gpu_runtime.models.heads.flow_policy import FlowHead
from gpu_runtime.models.heads.gr00t import Gr00tHead
from gpu_runtime.protocol.exploration import FlowNoiseSpec


class FlowNoiseHead(FlowHead):
    """The std of every action element follows from its hidden token, squashed between the specification's bounds."""

    std_is_learned = True

    def __init__(self, spec: FlowNoiseSpec, head: Gr00tHead, *, executed: int, explored_A: Tensor) -> None:
        super().__init__(head, steps=spec.steps, executed=executed, explored_A=explored_A)
        self.std_min, self.std_max = spec.std_min, spec.std_max
        sizes = (head.dit.out.out_features, *spec.hidden)
        hidden = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.SiLU())]
        self.noise = nn.Sequential(*hidden, nn.Linear(sizes[-1], head.shape.action_dim))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """The std starts near the middle of its bounds."""
        initialize(self.noise, generator)
        initialize_output(self.noise[-1], generator)  # type: ignore[arg-type]

    def transition(
        self, x_MHA: Tensor, velocity_MHA: Tensor, hidden_MHW: Tensor, step_M: Tensor, conditions: Mapping[str, Tensor]
    ) -> Normal:
        share_MHA = (torch.tanh(self.noise(hidden_MHW)) + 1) / 2
        return Normal(
            mean=flow.euler_step(x_MHA, velocity_MHA, self.head.denoise_steps),
            std=self.std_min + (self.std_max - self.std_min) * share_MHA,
        )
