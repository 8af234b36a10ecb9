"""PPO as a job runs it: advantages of whole chunks from the critic, and the clipped objective around the rollout.

Shapes: n decisions in time, B episodes.
"""

import torch

from gpu_runtime.protocol.algorithms import DecoupledPpoSpec, PpoSpec
from gpu_runtime.training.rl import gae, ppo
from gpu_runtime.training.rl.configs import gae_config, ppo_config
from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.experience import Experience
from gpu_runtime.training.rl.gae import Bootstrap
from gpu_runtime.training.rl.masks import moments, normalize
from gpu_runtime.training.rl.methods.base import (
    Advantages,
    Method,
    PolicyRows,
    PolicyTerm,
    ended,
    mask_of,
    rows_of,
    spread_of,
)


class PpoMethod(Method):
    """Also the base of what differs from it in the policy's loss only."""

    critic: ppo.PpoConfig

    def __init__(self, spec: PpoSpec | DecoupledPpoSpec) -> None:
        self.gae, self.critic = gae_config(spec), ppo_config(spec)
        self.normalizes = spec.normalize_advantages

    def needs_final_value(self, *, terminated: bool, truncated: bool) -> bool:
        match self.gae.bootstrap:
            case Bootstrap.ALWAYS:
                return terminated or truncated
            case Bootstrap.STANDARD:
                return truncated and not terminated
            case Bootstrap.NEVER:
                return False

    def estimate(self, experience: Experience) -> Advantages:
        final_nB = experience.final_values(ended(experience.episodes, self))
        nothing_B = torch.zeros(len(experience.episodes))  # every episode has ended
        found = gae.estimate(self.gae, experience.rollout, experience.values(), nothing_B, final_nB)
        advantages_nB = found.advantages
        if self.normalizes:
            advantages_nB = normalize(advantages_nB, found.valid)
        return Advantages(
            advantage_N=rows_of(experience, advantages_nB),
            returns_N=rows_of(experience, found.returns),
            mask_NC=mask_of(experience, experience.rollout.valid_steps()),
            statistics=spread_of("advantage", moments(found.advantages, found.valid)),
        )

    def policy_term(self, rows: PolicyRows) -> PolicyTerm:
        found = ppo.policy_loss(self.critic, rows.log_prob_NCA, rows.behaviour_NCA, rows.advantage_N, rows.mask_NCA)
        return PolicyTerm(loss=found.loss, statistics=found.statistics)

    def exceeds_target_kl(self, statistics: PolicyStatistics) -> bool:
        return ppo.exceeds_target_kl(self.critic, statistics)
