"""A policy in reinforcement learning: exploration around it, a critic beside it, a frozen copy of its start.

Shapes: B samples, H horizon, C executed steps, A action dims, S state dims.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gpu_runtime.models.errors import HeadConfigurationError
from gpu_runtime.models.heads.base import Features, StochasticHead
from gpu_runtime.models.heads.density import Score
from gpu_runtime.models.heads.randomness import generators_of
from gpu_runtime.models.heads.stochastic import build_stochastic_head
from gpu_runtime.models.heads.traces import Trace
from gpu_runtime.models.heads.value import ValueHead
from gpu_runtime.models.policy import Policy
from gpu_runtime.protocol.exploration import ActorCriticSpec

ACTOR_STREAM, CRITIC_STREAM = 0xAC7, 0xC217  # keep their first weights apart from each other's and from the head's


class ActorCritic:
    """Model space inside, units of the robot outside. The policy's own head explores: it is shared, not copied."""

    def __init__(self, policy: Policy, spec: ActorCriticSpec, *, seed: int) -> None:
        """Around a policy as it is now; ``seed`` draws the new weights. Raises HeadConfigurationError."""
        self.policy, self.spec = policy, spec
        self.actor = build_stochastic_head(
            spec.exploration,
            policy.head,
            executed=spec.executed_steps,
            explored_A=_explored(policy, spec),
            generator=torch.Generator().manual_seed(seed ^ (ACTOR_STREAM << 32)),
        ).to(policy.device)
        self.critic = _critic(policy, spec, torch.Generator().manual_seed(seed ^ (CRITIC_STREAM << 32)))
        self.reference: StochasticHead | None = _frozen(self.actor) if spec.reference else None

    def act(self, features: Sequence[Features], state_BS: np.ndarray | None, *, seeds: Sequence[int]) -> np.ndarray:
        """Actions without exploration in real units, float32 [B, H, A]: the mean, or the ODE from the seed's noise."""
        with torch.no_grad():
            actions_BHA = self.actor.act(features, self.policy.model_state(state_BS), generators_of(seeds))
        return self._real(actions_BHA)

    def act_with_trace(
        self, features: Sequence[Features], state_BS: np.ndarray | None, *, seeds: Sequence[int]
    ) -> tuple[np.ndarray, Trace]:
        """Exploring actions in real units, float32 [B, H, A], and their trace; one seed per sample."""
        state = self.policy.model_state(state_BS)
        actions_BHA, trace = self.actor.act_with_trace(features, state, generators_of(seeds))
        return self._real(actions_BHA), trace

    def score(self, features: Sequence[Features], state_BS: np.ndarray | None, trace: Trace) -> Score:
        """Log-probability and entropy under the current weights, each [B, C, A]."""
        return self.actor.score(features, self.policy.model_state(state_BS), self._on_device(trace))

    def reference_log_prob(self, features: Sequence[Features], state_BS: np.ndarray | None, trace: Trace) -> Tensor:
        """Log-probability under the weights that reinforcement learning started from, [B, C, A]; no gradient."""
        if self.reference is None:
            raise HeadConfigurationError("reference: false, allowed: true where a reference is asked for")
        with torch.no_grad():
            return self.reference.log_prob(features, self.policy.model_state(state_BS), self._on_device(trace))

    def value(
        self, features: Sequence[Features], state_BS: np.ndarray | None, progress_B: np.ndarray | None = None
    ) -> Tensor:
        """Values of observations, [B] or (per step) [B, C]; the prefix suffices, no action is computed.

        Zero until the critic has seen a first batch: the first rollouts are credited with what they were paid.
        """
        critic = self._asked_critic()
        if critic.needs_fit:
            return self._no_values(len(features))
        return self.value_of(critic.pool(features), state_BS, progress_B)

    def pool(self, features: Sequence[Features]) -> Tensor:
        """What the critic reads of observations, [B, D]: the same whatever its weights are."""
        return self._asked_critic().pool(features)

    def value_of(self, pooled_BD: Tensor, state_BS: np.ndarray | None, progress_B: np.ndarray | None = None) -> Tensor:
        """``value`` of observations whose features were pooled before."""
        critic = self._asked_critic()
        if critic.needs_fit:
            return self._no_values(len(pooled_BD))
        progress = None if progress_B is None else torch.as_tensor(progress_B, dtype=torch.float32)
        return critic.of_pooled(pooled_BD, self.policy.model_state(state_BS), progress)

    def _asked_critic(self) -> ValueHead:
        if self.critic is None:
            raise HeadConfigurationError("value: none, allowed: a critic where values are asked for")
        return self.critic

    def _no_values(self, samples: int) -> Tensor:
        critic = self._asked_critic()
        shape = (samples, self.spec.executed_steps) if critic.per_step else (samples,)
        return torch.zeros(shape, device=self.policy.device)

    def snapshot(self) -> "ActorCritic":
        """A frozen copy: what rollouts run while training goes on. The reference is not copied; nothing changes it."""
        reference, self.reference = self.reference, None
        try:
            lora = self.policy.lora  # reinforcement learning never changes it
            frozen = copy.deepcopy(self, {} if lora is None else {id(lora): lora})
        finally:
            self.reference = reference
        frozen.reference = reference
        for module in frozen.trained():
            _freeze(module)
        return frozen

    def trained(self) -> list[nn.Module]:
        """The modules that updates change."""
        return [self.actor] if self.critic is None else [self.actor, self.critic]

    def _on_device(self, trace: Trace) -> Trace:
        return {name: value.to(self.policy.device) for name, value in trace.items()}

    def _real(self, actions_BHA: Tensor) -> np.ndarray:
        return np.asarray(self.policy.actions.denormalize(actions_BHA.cpu().numpy()), dtype=np.float32)


def _explored(policy: Policy, spec: ActorCriticSpec) -> Tensor:
    """False at dimensions asked for and at those that never move: their noise would reach no robot."""
    names = policy.schema.action.names
    if unknown := [name for name in spec.unexplored if name not in names]:
        raise HeadConfigurationError(f"unexplored: {unknown[0]!r} is no action dimension, allowed: {list(names)}")
    wanted_A = torch.tensor([name not in spec.unexplored for name in names])
    return wanted_A & ~torch.as_tensor(policy.actions.degenerate_D)


def _critic(policy: Policy, spec: ActorCriticSpec, generator: torch.Generator) -> ValueHead | None:
    """It reads what the head reads, so that no forward runs deeper for it."""
    if spec.value is None:
        return None
    critic = ValueHead(spec.value, policy.head.shape, executed=spec.executed_steps)
    critic.reset_parameters(generator)
    return critic.to(policy.device)


def _frozen(actor: StochasticHead) -> StochasticHead:
    frozen = copy.deepcopy(actor)
    _freeze(frozen)
    return frozen


def _freeze(module: nn.Module) -> None:
    module.requires_grad_(False)
    module.zero_grad(set_to_none=True)
