"""GRPO as a job runs it: an episode against its group, and the clipped objective around the rollout."""

from gpu_runtime.protocol.algorithms import GrpoSpec
from gpu_runtime.training.rl import grpo
from gpu_runtime.training.rl.configs import grpo_config
from gpu_runtime.training.rl.diagnostics import PolicyStatistics
from gpu_runtime.training.rl.experience import Experience
from gpu_runtime.training.rl.masks import moments
from gpu_runtime.training.rl.methods.base import (
    Advantages,
    Method,
    PolicyRows,
    PolicyTerm,
    mask_of,
    rows_of,
    spread_of,
)


class GrpoMethod(Method):
    """No critic. A group that is left out leaves its chunks out."""

    def __init__(self, spec: GrpoSpec) -> None:
        self.config = grpo_config(spec)

    def estimate(self, experience: Experience) -> Advantages:
        found = grpo.estimate(self.config, experience.rollout, experience.groups_B)
        return Advantages(
            advantage_N=rows_of(experience, found.advantages_nB),
            returns_N=None,
            mask_NC=mask_of(experience, found.valid_nBC),
            statistics=spread_of("advantage", moments(found.advantages_nB, found.valid_nBC.any(dim=2)))
            | {
                "groups": float(found.groups),
                "zero_advantage_fraction": found.zero_advantage_fraction,
                "filtered_fraction": found.filtered_fraction,
            },
        )

    def policy_term(self, rows: PolicyRows) -> PolicyTerm:
        found = grpo.policy_loss(self.config, rows.log_prob_NCA, rows.behaviour_NCA, rows.advantage_N, rows.mask_NCA)
        return PolicyTerm(loss=found.loss, statistics=found.statistics)

    def exceeds_target_kl(self, statistics: PolicyStatistics) -> bool:
        return grpo.exceeds_target_kl(self.config, statistics)
