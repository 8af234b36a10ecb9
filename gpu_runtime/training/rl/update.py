"""One policy version to the next: epochs of minibatches over one batch of chunks, all or nothing.

Shapes: N chunks of the batch, M chunks of a minibatch, C executed actions per chunk, A action dims.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.probe import probe_frames
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.training.rl import ppo
from gpu_runtime.training.rl.batch import RlBatch
from gpu_runtime.training.rl.configs import reference_config
from gpu_runtime.training.rl.diagnostics import ExplainedVariance, LogProbGap
from gpu_runtime.training.rl.errors import OptionRefused, RolloutMismatch
from gpu_runtime.training.rl.masks import masked_mean
from gpu_runtime.training.rl.methods.base import Method, PolicyRows, PolicyTerm
from gpu_runtime.training.rl.methods.registry import method_of
from gpu_runtime.training.rl.reference_kl import ReferenceKlConfig, reference_kl
from gpu_runtime.training.rl.rows import Rows
from gpu_runtime.training.rl.tally import Tally, finite, staleness_metrics


def update(
    slot: RlSlot, features: Sequence[Features], batch: RlBatch, spec: RlJobSpec, *, partition_id: str
) -> dict[str, float]:
    """Train one step; returns its metrics and its rollout's, by full name. A batch without chunks makes a version too.

    Raises NonFiniteLoss, NonFiniteGradient, OptionRefused, RolloutMismatch or FutureVersion; weights, optimizer,
    random state and counters are then exactly as before.
    """
    check_options(slot, spec)
    stale = staleness_metrics(batch, slot.policy_version)
    known = dict(batch.statistics)
    with slot.whole_step([partition_id]):
        if len(batch):
            known |= _Update.begin(slot, Rows(slot, features, batch), spec).run()
        else:
            known |= {"epochs": 0.0}
    if len(batch):
        slot.observed = batch.observations(probe_frames(len(batch)))
    known["samples"] = float(len(batch))
    return finite({f"train/{name}": value for name, value in known.items()} | stale | dict(batch.told))


def check_options(slot: RlSlot, spec: RlJobSpec) -> None:
    """Raise OptionRefused for an option that this policy has no use for; worth asking when a job starts."""
    critic = method_of(spec.algorithm).critic
    if critic is not None and critic.entropy_coefficient > 0 and not slot.models.actor.std_is_learned:
        raise OptionRefused(
            "entropy_coefficient",
            f"entropy_coefficient {critic.entropy_coefficient} does not apply to exploration "
            f"{spec.exploration.type!r}, whose spread is not learned; allowed: 0",
        )


@dataclass(slots=True, kw_only=True)
class _Update:
    """One update while it runs. What is found before its first minibatch stays as it is."""

    slot: RlSlot
    rows: Rows
    method: Method
    spec: RlJobSpec
    reference: ReferenceKlConfig | None
    start_NCA: Tensor  # log-probability under the weights at the start
    reference_NCA: Tensor | None
    old_value_N: Tensor | None
    tally: Tally = field(default_factory=Tally)

    @classmethod
    def begin(cls, slot: RlSlot, rows: Rows, spec: RlJobSpec) -> "_Update":
        """Fit the critic to its first batch, and run the forwards that need no gradient."""
        size, reference = spec.training.minibatch_size, reference_config(spec.algorithm)
        value_N = rows.value_N
        if slot.needs_fit:
            slot.fit(rows.features)
            value_N = rows.everywhere(rows.value, size)  # the rollout had no critic yet: nothing to stay close to
        return cls(
            slot=slot,
            rows=rows,
            method=method_of(spec.algorithm),
            spec=spec,
            reference=reference,
            start_NCA=rows.everywhere(lambda part: rows.score(part).log_prob_BCA, size),
            reference_NCA=None if reference is None else rows.everywhere(rows.reference_log_prob, size),
            old_value_N=value_N,
        )

    @property
    def critic_only(self) -> bool:
        """The first iterations of a job may leave the actor alone until the critic knows something."""
        return self.slot.step < self.spec.training.value_warmup

    def run(self) -> dict[str, float]:
        """All epochs, or those until the policy has moved far enough; metrics by bare name."""
        training = self.spec.training
        for _ in range(training.epochs):
            for part in self.slot.minibatches(len(self.rows), training.minibatch_size):
                self._minibatch(part)
            self.tally.epochs += 1
            if not self.critic_only and self._moved_far():
                break
        return self.tally.metrics() | self._before()

    def _minibatch(self, part: Tensor) -> None:
        total = torch.zeros((), device=self.slot.policy.device)
        if not self.critic_only:
            total = total + self._policy_loss(part)
        if self.method.critic is not None:
            total = total + self._value_loss(part, self.method.critic)
        found = self.slot.apply(total)
        norms = {name.replace("/", "_"): value for name, value in found.items() if name.startswith("grad_norm/")}
        self.tally.add(len(part), loss=float(total.detach()), lr=found["learning_rate"], **norms)

    def _policy_loss(self, part: Tensor) -> Tensor:
        score, mask_NCA = self.rows.score(part), self.rows.mask_NCA[part]
        term = self._term(part, score.log_prob_BCA)
        self.tally.add_policy(term)
        entropy = masked_mean(score.entropy_BCA, mask_NCA)
        self.tally.add(len(part), policy_loss=float(term.loss.detach()), entropy=float(entropy.detach()))
        total = term.loss
        if self.method.critic is not None and self.method.critic.entropy_coefficient > 0:
            total = total - self.method.critic.entropy_coefficient * entropy
        if self.reference is not None and self.reference_NCA is not None:
            kl = reference_kl(self.reference, score.log_prob_BCA, self.reference_NCA[part], mask_NCA)
            self.tally.add(len(part), reference_kl=float(kl.mean))
            total = total + kl.penalty
        return total

    def _value_loss(self, part: Tensor, critic: ppo.PpoConfig) -> Tensor:
        if self.rows.returns_N is None:
            raise RolloutMismatch("returns: missing, needed by the critic")
        old_N = None if self.old_value_N is None else self.old_value_N[part]
        found = ppo.value_loss(critic, self.rows.value(part), old_N, self.rows.returns_N[part])
        self.tally.add(
            len(part), value_loss=float(found.loss.detach()), value_clip_fraction=found.clipped / found.elements
        )
        return critic.value_coefficient * found.loss

    def _term(self, part: Tensor, log_prob_MCA: Tensor) -> PolicyTerm:
        rows = self.rows
        return self.method.policy_term(
            PolicyRows(
                log_prob_NCA=log_prob_MCA,
                behaviour_NCA=rows.behaviour_NCA[part],
                start_NCA=self.start_NCA[part],
                advantage_N=rows.advantage_N[part],
                mask_NCA=rows.mask_NCA[part],
                version_N=rows.version_N[part],
                policy_version=self.slot.policy_version,
            )
        )

    def _moved_far(self) -> bool:
        """The KL after an epoch, of the whole batch: minibatches of the epoch itself were still near the start."""
        now_NCA = self.rows.everywhere(lambda part: self.rows.score(part).log_prob_BCA, self._size)
        with torch.no_grad():
            found = self._term(torch.arange(len(self.rows)), now_NCA).statistics
        self.tally.last_kl = found.approx_kl
        return self.method.exceeds_target_kl(found)

    @property
    def _size(self) -> int:
        return self.spec.training.minibatch_size

    def _before(self) -> dict[str, float]:
        """How the rollout's figures compare with the trainer's at the start of the update."""
        rows = self.rows
        metrics: dict[str, float] = {}
        fresh_N = rows.version_N == self.slot.policy_version
        if bool(fresh_N.any()):  # other versions' log-probabilities differ by right
            fresh_N = fresh_N.to(rows.mask_NCA.device)
            gap = LogProbGap.of(rows.behaviour_NCA[fresh_N], self.start_NCA[fresh_N], rows.mask_NCA[fresh_N])
            metrics |= {"log_prob_gap": gap.mean_absolute, "log_prob_gap_max": gap.largest}
        if rows.value_N is not None and rows.returns_N is not None:
            metrics["explained_variance"] = ExplainedVariance.of(rows.value_N, rows.returns_N).value
        return metrics
