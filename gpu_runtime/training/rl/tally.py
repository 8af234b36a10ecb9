"""What an update did, gathered over its minibatches, as the metrics of one policy version."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_runtime.training.rl.batch import RlBatch
from gpu_runtime.training.rl.diagnostics import PolicyStatistics, staleness_histogram
from gpu_runtime.training.rl.methods.base import PolicyTerm


@dataclass(slots=True, kw_only=True)
class Tally:
    """Means are weighted by chunks, fractions and KLs by the elements they are of."""

    epochs: int = 0
    policy: PolicyStatistics = field(default_factory=PolicyStatistics)
    last_kl: float | None = None  # of the whole batch, after the last epoch
    _sums: Counter[str] = field(default_factory=Counter)  # of terms that are per element of the policy
    _means: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))

    def add_policy(self, term: PolicyTerm) -> None:
        self.policy += term.statistics
        self._sums.update(term.sums)

    def add(self, chunks: int, **values: float) -> None:
        """Values of one minibatch or of one update."""
        for name, value in values.items():
            mean = self._means[name]
            mean[0] += value * chunks
            mean[1] += chunks

    def metrics(self) -> dict[str, float]:
        """By bare name."""
        found = {name: total / chunks for name, (total, chunks) in self._means.items() if chunks}
        if self.policy.elements:
            found |= self.policy.metrics()
            found |= {name: total / self.policy.elements for name, total in self._sums.items()}
        if self.last_kl is not None:
            found["approx_kl"] = self.last_kl
        return found | {"epochs": float(self.epochs)}


def staleness_metrics(batch: RlBatch, policy_version: int) -> dict[str, float]:
    """Updates between acting and learning: mean, maximum, and chunks at each distance. Raises FutureVersion."""
    if not len(batch):
        return {}
    counts = staleness_histogram(policy_version, batch.version_N.tolist())
    metrics = {
        "rollout/staleness_mean": sum(age * count for age, count in counts.items()) / len(batch),
        "rollout/staleness_max": float(max(counts)),
    }
    return metrics | {f"rollout/staleness/{age}": float(count) for age, count in counts.items()}


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without what has no value here, e.g. the explained variance of returns that are all the same."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
