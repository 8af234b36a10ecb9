"""Flow heads that explore: denoising steps become random, and the denoising chain is the trace.

Trace: ``chain`` [B, K+1, H, A] from noise to actions; ``step`` [B] the random step (-1: all are).

One step ("non-joint"): each sample draws the step that is random, the others are the ODE's; the log-probability is
that of this one transition and costs one velocity. Joint: every transition is random, and the standard normal
log-density of the initial noise counts as a further term; mean or sum over the K + 1 terms; K velocities.

Shapes: B samples, K denoising steps, D random steps (1 or K), M = B*D chunks, H horizon, C executed steps,
A action dims, S state dims, W hidden width.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gpu_runtime.models.errors import BatchMismatch
from gpu_runtime.models.heads import flow
from gpu_runtime.models.heads.base import Features, StochasticHead, detached
from gpu_runtime.models.heads.density import Normal, Score
from gpu_runtime.models.heads.gr00t import Gr00tHead
from gpu_runtime.models.heads.randomness import integers_each, normal_each
from gpu_runtime.models.heads.traces import Trace, part
from gpu_runtime.protocol.exploration import StochasticSteps

ALL = -1  # ``step`` of a joint chain


class FlowHead(StochasticHead):
    """A chain of K denoising steps of which one or all are random; what their noise is, a subclass says."""

    head: Gr00tHead

    def __init__(self, head: Gr00tHead, *, steps: StochasticSteps, executed: int, explored_A: Tensor) -> None:
        super().__init__(head, executed=executed, explored_A=explored_A)
        self.joint, self.as_sum = steps != "one", steps == "joint_sum"
        self.random_steps = head.denoise_steps if self.joint else 1

    @abstractmethod
    def transition(
        self, x_MHA: Tensor, velocity_MHA: Tensor, hidden_MHW: Tensor, step_M: Tensor, conditions: Mapping[str, Tensor]
    ) -> Normal:
        """The next state if step ``step_M`` is random; ``conditions`` are those of the rollout, [M] each."""

    def rollout_conditions(self, samples: int) -> Trace:
        """What a rollout's noise depends on besides the weights, [B] each; kept in its trace."""
        return {}

    def act(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """The ODE from each sample's own noise."""
        return self.head.integrate(self._initial(generators), features, state_BS)

    @torch.no_grad()
    def act_with_trace(
        self, features: Sequence[Features], state_BS: Tensor | None, generators: Sequence[torch.Generator]
    ) -> tuple[Tensor, Trace]:
        x_BHA = self._initial(generators)
        chain, log_probs = [x_BHA], []
        random_step_B = self._draw_step(generators, x_BHA.device)
        noise_BDHA = normal_each((self.random_steps, *x_BHA.shape[1:]), generators, x_BHA.device)
        field, conditions = self.head.field(features, state_BS), self.rollout_conditions(len(features))
        for k in range(self.head.denoise_steps):
            step_B = torch.full_like(random_step_B, k)
            velocity_BHA, hidden_BHW = field(x_BHA, step_B)
            random = self._explored(self.transition(x_BHA, velocity_BHA, hidden_BHW, step_B, conditions))
            is_random_B11 = ((random_step_B == k) | (random_step_B == ALL))[:, None, None]
            x_BHA = torch.where(
                is_random_B11,
                random.sample(noise_BDHA[:, k % self.random_steps]),
                flow.euler_step(x_BHA, velocity_BHA, self.head.denoise_steps),
            )
            log_probs.append(torch.where(is_random_B11, random.log_prob(x_BHA), 0.0))
            chain.append(x_BHA)
        log_prob_BCA = self._reduce(torch.stack(log_probs, dim=1), self._prior(chain[0]).log_prob(chain[0]))
        trace = {"chain": torch.stack(chain, dim=1), "step": random_step_B, "log_prob": log_prob_BCA}
        return x_BHA, trace | conditions

    def score(self, features: Sequence[Features], state_BS: Tensor | None, trace: Trace) -> Score:
        samples, steps = len(features), self.head.denoise_steps
        chain = part(trace, "chain", (samples, steps + 1, self.head.horizon, self.head.shape.action_dim))
        step_BD = self._random_steps(trace, samples)
        conditions = {name: part(trace, name, (samples,)) for name in self.rollout_conditions(samples)}
        conditions = {name: value.repeat_interleave(self.random_steps) for name, value in conditions.items()}
        rows_B1 = torch.arange(samples, device=chain.device)[:, None]
        before_MHA, after_MHA = chain[rows_B1, step_BD].flatten(0, 1), chain[rows_B1, step_BD + 1].flatten(0, 1)
        step_M = step_BD.flatten()
        velocity_MHA, hidden_MHW = self.head.field(detached(features), state_BS)(before_MHA, step_M)
        random = self._explored(self.transition(before_MHA, velocity_MHA, hidden_MHW, step_M, conditions))
        prior, shape = self._prior(chain[:, 0]), (samples, self.random_steps)
        return Score(
            log_prob_BCA=self._reduce(random.log_prob(after_MHA).unflatten(0, shape), prior.log_prob(chain[:, 0])),
            entropy_BCA=self._reduce(random.entropy().unflatten(0, shape), prior.entropy()),
        )

    def _initial(self, generators: Sequence[torch.Generator]) -> Tensor:
        """The first draw of every generator, as in imitation's ``act``: the same noise gives the same actions."""
        return normal_each((self.head.horizon, self.head.shape.action_dim), generators, self.explored_A.device)

    def _draw_step(self, generators: Sequence[torch.Generator], device: torch.device) -> Tensor:
        if self.joint:
            return torch.full((len(generators),), ALL, device=device)
        return integers_each(self.head.denoise_steps, generators, device)

    def _random_steps(self, trace: Trace, samples: int) -> Tensor:
        """The random steps of each sample, [B, D]. Raises BatchMismatch for a chain of the other kind."""
        step_B, steps = part(trace, "step", (samples,)), self.head.denoise_steps
        low, high = (ALL, ALL) if self.joint else (0, steps - 1)
        if bool(((step_B < low) | (step_B > high)).any()):
            raise BatchMismatch(f"trace['step']: {sorted(set(step_B.tolist()))}, allowed: {low} to {high}")
        return torch.arange(steps, device=step_B.device).expand(samples, -1) if self.joint else step_B[:, None]

    def _explored(self, step: Normal) -> Normal:
        return Normal(mean=step.mean, std=(step.std * self.explored_A).expand_as(step.mean))

    def _prior(self, x_BHA: Tensor) -> Normal:
        return self._explored(Normal(mean=torch.zeros_like(x_BHA), std=torch.ones_like(x_BHA)))

    def _reduce(self, terms_BDHA: Tensor, prior_BHA: Tensor) -> Tensor:
        """Terms of the random steps as one, of the executed steps only; in a rollout the other steps' are 0."""
        terms_BDCA = terms_BDHA[:, :, : self.executed]
        if not self.joint:
            return terms_BDCA.sum(dim=1)
        terms_BDCA = torch.cat([prior_BHA[:, None, : self.executed], terms_BDCA], dim=1)
        return terms_BDCA.sum(dim=1) if self.as_sum else terms_BDCA.mean(dim=1)
