"""Regression heads that explore: a normal distribution around the regression, one learned log-std per action dim.

Shapes: B samples, H horizon, C executed steps, A action dims, S state dims.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gpu_runtime.models.backbones.frozen import STABLE_GEMM_ROWS
from gpu_runtime.models.heads.base import Features, Head, StochasticHead, detached
from gpu_runtime.models.heads.density import Normal, Score
from gpu_runtime.models.heads.randomness import normal_each
from gpu_runtime.models.heads.traces import Trace, part
from gpu_runtime.protocol.exploration import GaussianSpec


class GaussianHead(StochasticHead):
    """N(regression, exp(log_std)) in model space. Trace: ``sample`` [B, C, A], the actions that were executed."""

    std_is_learned = True

    def __init__(self, spec: GaussianSpec, head: Head, *, executed: int, explored_A: Tensor) -> None:
        super().__init__(head, executed=executed, explored_A=explored_A)
        self.spec = spec
        self.log_std_A = nn.Parameter(torch.empty(head.shape.action_dim))

    def reset_parameters(self, generator: torch.Generator) -> None:
        nn.init.constant_(self.log_std_A, self.spec.log_std_init)

    @torch.no_grad()
    def constrain(self) -> None:
        """Bring the log-std back within its bounds. Left outside, it would never get a gradient again."""
        self.log_std_A.clamp_(self.spec.log_std_min, self.spec.log_std_max)

    def act(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """The mean, which is the regression."""
        return self.head(features, state_BS)

    @torch.no_grad()
    def act_with_trace(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> tuple[Tensor, Trace]:
        policy = self._policy(features, state_BS)
        actions_BHA = policy.sample(normal_each(tuple(policy.mean.shape[1:]), generators, policy.mean.device))
        log_prob_BCA = policy.log_prob(actions_BHA)[:, : self.executed]
        return actions_BHA, {"sample": actions_BHA[:, : self.executed], "log_prob": log_prob_BCA}

    def score(self, features: Sequence[Features], state_BS: Tensor | None, trace: Trace) -> Score:
        shape = (len(features), self.executed, self.head.shape.action_dim)
        policy = self._policy(detached(features), state_BS, steps=self.executed)
        return Score(log_prob_BCA=policy.log_prob(part(trace, "sample", shape)), entropy_BCA=policy.entropy())

    def _policy(self, features: Sequence[Features], state_BS: Tensor | None, steps: int | None = None) -> Normal:
        mean_BHA = self._regression(features, state_BS)[:, :steps]
        std_A = self.log_std_A.clamp(self.spec.log_std_min, self.spec.log_std_max).exp() * self.explored_A
        return Normal(mean=mean_BHA, std=std_A.expand_as(mean_BHA))

    def _regression(self, features: Sequence[Features], state_BS: Tensor | None) -> Tensor:
        """The same bits alone and in any group: a mean that is off by e moves a log-probability by z e / std.

        On a CPU few rows go through other kernels, which at means of 4 and a std of 0.08 costs up to 2e-5.
        """
        samples = len(features)
        missing = STABLE_GEMM_ROWS * torch.get_num_threads() - samples
        if missing <= 0 or self.explored_A.device.type != "cpu":
            return self.head(features, state_BS)
        state = None if state_BS is None else torch.cat([state_BS, state_BS[-1:].expand(missing, -1)])
        return self.head([*features, *[features[-1]] * missing], state)[:samples]
