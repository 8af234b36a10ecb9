"""REINFORCE as a job runs it: one pass over data of the current policy version."""

from gpu_runtime.protocol.algorithms import ReinforceSpec
from gpu_runtime.training.rl import reinforce
from gpu_runtime.training.rl.configs import reinforce_config
from gpu_runtime.training.rl.experience import Experience
from gpu_runtime.training.rl.levels import log_prob_at, mask_at
from gpu_runtime.training.rl.masks import moments
from gpu_runtime.training.rl.methods.base import (
    Advantages,
    Method,
    PolicyRows,
    PolicyTerm,
    mask_of,
    no_clip,
    rows_of,
    spread_of,
)
from gpu_runtime.training.rl.reinforce import GROUPED
from gpu_runtime.training.rl.surrogate import bounded


class ReinforceMethod(Method):
    """No critic, no ratio in the loss; the ratio is measured all the same."""

    def __init__(self, spec: ReinforceSpec) -> None:
        self.config = reinforce_config(spec)

    def estimate(self, experience: Experience) -> Advantages:
        groups_B = experience.groups_B if self.config.baseline in GROUPED else None
        found = reinforce.estimate(self.config, experience.rollout, groups_B)
        return Advantages(
            advantage_N=rows_of(experience, found.advantages_nB),
            returns_N=None,
            mask_NC=mask_of(experience, found.valid_nBC),
            statistics=spread_of("advantage", moments(found.advantages_nB, experience.rollout.valid_chunks())),
        )

    def policy_term(self, rows: PolicyRows) -> PolicyTerm:
        loss = reinforce.policy_loss(self.config, rows.log_prob_NCA, rows.advantage_N, rows.mask_NCA)
        level, mask = self.config.log_prob_level, rows.mask_NCA
        now, then = (log_prob_at(level, part.detach(), mask) for part in (rows.log_prob_NCA, rows.behaviour_NCA))
        return PolicyTerm(loss=loss, statistics=no_clip(bounded(now - then), mask_at(level, rows.log_prob_NCA, mask)))
