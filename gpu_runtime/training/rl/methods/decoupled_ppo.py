"""Decoupled PPO as a job runs it: PPO's advantages, its own treatment of data that are not of this version."""

from gpu_runtime.protocol.algorithms import DecoupledPpoSpec
from gpu_runtime.training.rl import decoupled
from gpu_runtime.training.rl.configs import decoupled_config
from gpu_runtime.training.rl.decoupled import Proximal
from gpu_runtime.training.rl.methods.base import PolicyRows, PolicyTerm
from gpu_runtime.training.rl.methods.ppo import PpoMethod


class DecoupledPpoMethod(PpoMethod):
    """The proximal policy is the one at the start of the update, or interpolated by version."""

    def __init__(self, spec: DecoupledPpoSpec) -> None:
        super().__init__(spec)
        self.config = decoupled_config(spec)

    def policy_term(self, rows: PolicyRows) -> PolicyTerm:
        recomputed = self.config.proximal is Proximal.RECOMPUTED
        found = decoupled.policy_loss(
            self.config,
            rows.log_prob_NCA,
            rows.behaviour_NCA,
            rows.advantage_N,
            rows.mask_NCA,
            proximal_log_prob_NCA=rows.start_NCA if recomputed else None,
            behaviour_version_N=None if recomputed else rows.version_N,
            policy_version=None if recomputed else rows.policy_version,
        )
        sums = {"behaviour_cap_fraction": float(found.capped), "behaviour_kl": found.behaviour_kl}
        return PolicyTerm(loss=found.loss, statistics=found.statistics, sums=sums)
