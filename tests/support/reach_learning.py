"""A small Gaussian policy learns the built-in reach environment with the product's own RL functions, in one process.

Shapes: n chunks, B environments, C executed actions per chunk, A action dims, S state dims, N chunks of a minibatch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from gpu_runtime.environments import reach
from gpu_runtime.training.rl import gae, grpo, ppo
from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.masks import normalize
from gpu_runtime.training.rl.rollout import Rollout
from gpu_runtime.training.rl.surrogate import exceeds_target_kl

CHUNK = 4
ACTIONS, STATES = 2, 4
EVALUATION_SEEDS = range(1_000_000, 1_000_050)
MINIBATCH = 64
EPOCHS = 8


class Policy(nn.Module):
    """Actions around the mean of a tanh MLP, with one learned spread per action dim."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = _mlp(CHUNK * ACTIONS)
        self.log_std_A = nn.Parameter(torch.full((ACTIONS,), -0.5))

    def distribution(self, states_NS: Tensor) -> torch.distributions.Normal:
        mean_NCA = self.mean(states_NS).reshape(-1, CHUNK, ACTIONS)
        return torch.distributions.Normal(mean_NCA, self.log_std_A.exp().expand_as(mean_NCA))


def _mlp(outputs: int) -> nn.Sequential:
    last = nn.Linear(64, outputs)
    nn.init.normal_(last.weight, std=0.01)
    return nn.Sequential(nn.Linear(STATES, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), last)


@dataclass(frozen=True, kw_only=True)
class Experience:
    """One episode per environment; ``final_states_nBS`` only where an episode ended."""

    rollout: Rollout
    states_nBS: Tensor
    final_states_nBS: Tensor
    actions_nBCA: Tensor
    log_prob_nBCA: Tensor


@dataclass
class Worlds:
    """Reach environments stepped one after the other."""

    worlds: list[reach.ReachEnvironment] = field(default_factory=list)

    def run(self, seeds: Sequence[int], act: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Experience:
        """A whole episode in each; an environment that is done idles."""
        while len(self.worlds) < len(seeds):
            self.worlds.append(reach.ReachEnvironment())
        chunks, envs = reach.MAX_STEPS // CHUNK, len(seeds)
        rewards = np.zeros((chunks, envs, CHUNK), np.float32)
        executed, terminated, truncated = (np.zeros((chunks, envs), kind) for kind in (np.int64, bool, bool))
        states = np.stack([w.reset(seed).state_S for w, seed in zip(self.worlds, seeds, strict=False)])
        seen, final, actions, log_probs = [], torch.zeros(chunks, envs, STATES), [], []
        done = np.zeros(envs, bool)
        for n in range(chunks):
            seen.append(torch.from_numpy(states.copy()))
            action_BCA, log_prob_BCA = act(seen[-1])
            actions.append(action_BCA)
            log_probs.append(log_prob_BCA)
            for b in np.flatnonzero(~done):
                for c in range(CHUNK):
                    result = self.worlds[b].step(action_BCA[b, c].numpy())
                    rewards[n, b, c], executed[n, b] = result.reward, c + 1
                    if result.terminated or result.truncated:
                        done[b], terminated[n, b], truncated[n, b] = True, result.terminated, result.truncated
                        final[n, b] = torch.from_numpy(result.observation.state_S)
                        break
                states[b] = result.observation.state_S
        return Experience(
            rollout=Rollout.from_chunks(
                *(torch.from_numpy(part) for part in (rewards, executed, terminated, truncated)), auto_reset=False
            ),
            states_nBS=torch.stack(seen),
            final_states_nBS=final,
            actions_nBCA=torch.stack(actions),
            log_prob_nBCA=torch.stack(log_probs),
        )

    def mean_return(self, act: Callable[[Tensor], Tensor]) -> float:
        """Over fixed starts that are never trained on."""
        experience = self.run(EVALUATION_SEEDS, lambda states: (act(states), torch.zeros(0)))
        return float(experience.rollout.kept_rewards().sum(dim=(0, 2)).mean())


def straight_to_goal(states_BS: Tensor) -> Tensor:
    """The fastest way there is, a whole chunk ahead; [B, C, A]."""
    delta_BA, plan = states_BS[:, 2:].clone(), []
    for _ in range(CHUNK):
        plan.append((delta_BA / reach.SPEED).clamp(-1, 1))
        delta_BA = delta_BA - reach.SPEED * plan[-1]
    return torch.stack(plan, dim=1)


SHARED = {"log_prob_level": "chunk", "target_kl": 0.05}
LEARNING_RATE = {"ppo": 2e-3, "grpo": 1.5e-3}


class Learner:
    """PPO or GRPO on reach. ``shuffled``: each chunk is credited with another chunk's advantage."""

    gae = gae.GaeConfig(gamma=0.95, gae_lambda=0.95)
    ppo = ppo.PpoConfig(**SHARED, value_clip=None)
    grpo = grpo.GrpoConfig(**SHARED, group_size=8, min_std=0.02)

    def __init__(self, algorithm: str, seed: int, *, shuffled: bool = False) -> None:
        torch.manual_seed(seed)
        self.clip = {"ppo": self.ppo, "grpo": self.grpo}[algorithm]
        self.algorithm, self.shuffled = algorithm, shuffled
        self.policy, self.value, self.worlds = Policy(), _mlp(1), Worlds()
        weights = [*self.policy.parameters(), *self.value.parameters()]
        self.optimizer = torch.optim.Adam(weights, lr=LEARNING_RATE[algorithm])
        self.generator = torch.Generator().manual_seed(seed)
        self.numbers = np.random.default_rng(seed)

    def mean_return(self) -> float:
        with torch.no_grad():
            return self.worlds.mean_return(lambda states: self.policy.distribution(states).mean)

    def iteration(self, envs: int = 64) -> None:
        """One batch of episodes, then up to EPOCHS passes over it."""
        group = self.grpo.group_size if self.algorithm == "grpo" else 1
        seeds = self.numbers.integers(0, 1_000_000, envs // group).repeat(group)
        with torch.no_grad():
            experience = self.worlds.run(seeds, self._sample)
            batch = self._grpo_batch(experience, seeds) if self.algorithm == "grpo" else self._ppo_batch(experience)
        if self.shuffled:
            batch = self._shuffle(batch)
        for _ in range(EPOCHS):
            statistics = PolicyStatistics()
            for loss, found in self._minibatches(batch):
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()
                statistics += found
            if exceeds_target_kl(self.clip, statistics):
                return

    def _sample(self, states_BS: Tensor) -> tuple[Tensor, Tensor]:
        spread = self.policy.distribution(states_BS)
        action_BCA = spread.mean + spread.stddev * torch.randn(spread.mean.shape, generator=self.generator)
        return action_BCA, spread.log_prob(action_BCA)

    def _ppo_batch(self, experience: Experience) -> "Batch":
        values_nB = self.value(experience.states_nBS)[..., 0]
        final_nB = self.value(experience.final_states_nBS)[..., 0]
        next_values_B = torch.zeros_like(final_nB[0])  # every episode has ended
        found = gae.estimate(self.gae, experience.rollout, values_nB, next_values_B, final_nB)
        advantages_nB = normalize(found.advantages, found.valid)
        return Batch.of(experience, experience.rollout.valid_steps(), advantages_nB, found.returns)

    def _grpo_batch(self, experience: Experience, seeds: np.ndarray) -> "Batch":
        found = grpo.estimate(self.grpo, experience.rollout, torch.from_numpy(seeds))
        return Batch.of(experience, found.valid_nBC, found.advantages_nB, torch.zeros_like(found.advantages_nB))

    def _shuffle(self, batch: "Batch") -> "Batch":
        order = torch.randperm(len(batch.advantages_N), generator=self.generator)
        return replace(batch, advantages_N=batch.advantages_N[order])

    def _minibatches(self, batch: "Batch") -> Iterator[tuple[Tensor, PolicyStatistics]]:
        rows = torch.randperm(len(batch.states_NS), generator=self.generator)
        for part in rows.split(MINIBATCH):
            log_prob_NCA = self.policy.distribution(batch.states_NS[part]).log_prob(batch.actions_NCA[part])
            old_NCA, advantage_N, mask_NC = batch.log_prob_NCA[part], batch.advantages_N[part], batch.mask_NC[part]
            if self.algorithm == "grpo":
                found = grpo.policy_loss(self.grpo, log_prob_NCA, old_NCA, advantage_N, mask_NC)
                yield found.loss, found.statistics
                continue
            found = ppo.policy_loss(self.ppo, log_prob_NCA, old_NCA, advantage_N, mask_NC)
            value_N = self.value(batch.states_NS[part])[:, 0]
            value = ppo.value_loss(self.ppo, value_N, None, batch.returns_N[part])
            yield ppo.total_loss(self.ppo, found.loss, value.loss), found.statistics


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The chunks of a rollout that can be learned from, in one row each."""

    states_NS: Tensor
    actions_NCA: Tensor
    log_prob_NCA: Tensor
    mask_NC: Tensor
    advantages_N: Tensor
    returns_N: Tensor

    @classmethod
    def of(cls, experience: Experience, valid_nBC: Tensor, advantages_nB: Tensor, returns_nB: Tensor) -> "Batch":
        chunks = valid_nBC.any(dim=2)
        return cls(
            states_NS=experience.states_nBS[chunks],
            actions_NCA=experience.actions_nBCA[chunks],
            log_prob_NCA=experience.log_prob_nBCA[chunks],
            mask_NC=valid_nBC[chunks],
            advantages_N=advantages_nB[chunks],
            returns_N=returns_nB[chunks],
        )
