"""The figures of a finished demo and the checks they must pass."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from control_plane.demo.books import ServiceBooks

LOSS_POINTS = 10  # first and last loss are means over this many steps: one step's loss is noisy
LOSS_MUST_FALL_TO = 0.5  # of imitation; the start of reinforcement learning is meant to be weak and must only fall
RELOAD_DIFFERENCE_MAX = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Share of counted episodes that were solved, with its Wilson 95 % interval."""

    rate: float
    low: float
    high: float
    episodes: int

    @property
    def interval(self) -> tuple[float, float]:
        return round(self.low, 4), round(self.high, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFigures:
    """One tenant's outcome. Money is exact; ``cost``, ``priced_usage`` and ``busy_us`` are of all its jobs.

    ``loss_*``, ``*_error`` (mean absolute, in the robot's own units; None without held-out episodes) and
    ``group_size_mean`` are of its imitation: the main job, or the job that reinforcement learning began with.
    ``samples``: what the main job's optimizer steps saw. ``predict_p95_ms``: the worst that the job reported.
    """

    name: str
    environment: str
    head: str
    algorithm: str
    must_improve: bool
    samples: int
    loss_first: float
    loss_last: float
    action_error: float | None
    baseline_error: float | None
    group_size_mean: float
    before: Success
    after: Success
    policy_versions: int
    dropped_stale: int
    env_steps: int
    predict_p95_ms: float | None
    busy_us: int
    cost: Decimal
    currency: str
    priced_usage: Decimal
    adapter: str
    reload_max_diff: float

    def as_json(self) -> dict[str, Any]:
        """JSON types only; money as strings."""
        kept = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in {"before", "after", "must_improve"}
        }
        success = {
            "success_before": self.before.rate,
            "success_after": self.after.rate,
            "episodes": self.after.episodes,
            "ci95_before": self.before.interval,
            "ci95_after": self.after.interval,
        }
        told = kept | success
        return {key: str(value) if isinstance(value, Decimal) else value for key, value in told.items()}

    def failures(self) -> list[str]:
        """Every check that does not hold, as a sentence with its figures."""
        checks = {
            f"cost {self.cost} differs from priced usage {self.priced_usage}": self.cost == self.priced_usage,
            f"the reloaded adapter differs by {self.reload_max_diff:.2e}": (
                self.reload_max_diff <= RELOAD_DIFFERENCE_MAX
            ),
            f"loss fell only from {self.loss_first:.4f} to {self.loss_last:.4f}": (
                self.loss_last <= LOSS_MUST_FALL_TO * self.loss_first
                if self.algorithm == "sft"
                else self.loss_last < self.loss_first
            ),
            f"{self.policy_versions} policy versions were published": self.policy_versions > 0,
            f"success went from {self.before.rate:.0%} to {self.after.rate:.0%}": (
                not self.must_improve or self.after.rate > self.before.rate
            ),
        }
        if self.action_error is not None and self.baseline_error is not None:
            checks[
                f"action error {self.action_error:.4f} is not below the mean action's {self.baseline_error:.4f}"
            ] = self.action_error < self.baseline_error
        return [f"{self.name}: {text}" for text, holds in checks.items() if not holds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole demo. ``services``: measured since its first job; ``utilization``: while the four main jobs ran."""

    wall_s: float
    environment: str
    base_model: str
    services: Mapping[str, ServiceBooks]
    utilization: Mapping[str, float]
    tenants: tuple[TenantFigures, ...]

    @property
    def busy_us(self) -> int:
        return sum(books.busy_us for books in self.services.values())

    def as_json(self) -> dict[str, Any]:
        """JSON types only."""
        fields = {key: getattr(self, key) for key in ("wall_s", "environment", "base_model", "busy_us")}
        return fields | {
            "overhead_us": sum(books.overhead_us for books in self.services.values()),
            "unattributed_us": sum(books.unattributed_us for books in self.services.values()),
            "services": {
                name: dataclasses.asdict(books) | {"unattributed_us": books.unattributed_us}
                for name, books in self.services.items()
            },
            "utilization": dict(self.utilization),
            "tenants": [tenant.as_json() for tenant in self.tenants],
        }

    def failures(self) -> list[str]:
        """Every check that does not hold, as a sentence with its figures."""
        found = [text for tenant in self.tenants for text in tenant.failures()]
        for name, books in self.services.items():
            if books.busy_us == 0:
                found.append(f"the {name} service measured no work")
            if books.unattributed_us != 0:
                found.append(
                    f"{name}: shares and overhead differ from the measured time by "
                    f"{books.unattributed_us} microseconds"
                )
        return found
