"""The figures of a finished demo and the checks they must pass."""

import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

LOSS_POINTS = 10  # first and last loss are means over this many steps: one step's loss is noisy
LOSS_MUST_FALL_TO = 0.5
GROUP_SIZE_MIN = 1.2
RELOAD_DIFFERENCE_MAX = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFigures:
    """One tenant's outcome. Errors are mean absolute, in the robot's own units; money is exact."""

    name: str
    head: str
    samples: int
    loss_first: float
    loss_last: float
    action_error: float
    baseline_error: float
    group_size_mean: float
    busy_us: int
    cost: Decimal
    currency: str
    priced_usage: Decimal
    adapter: str
    reload_max_diff: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole demo. ``busy_us`` is the measured device time of its steps."""

    wall_s: float
    environment: str
    base_model: str
    busy_us: int
    overhead_us: int
    tenants: tuple[TenantFigures, ...]

    @property
    def unattributed_us(self) -> int:
        return self.busy_us - self.overhead_us - sum(tenant.busy_us for tenant in self.tenants)

    def as_json(self) -> dict[str, Any]:
        """JSON types only; money as strings."""
        tenants = [
            {key: str(value) if isinstance(value, Decimal) else value for key, value in dataclasses.asdict(t).items()}
            for t in self.tenants
        ]
        fields = {key: getattr(self, key) for key in ("wall_s", "environment", "base_model", "busy_us", "overhead_us")}
        return fields | {"unattributed_us": self.unattributed_us, "tenants": tenants}

    def failures(self) -> list[str]:
        """Every check that does not hold, as a sentence with its figures."""
        found = [text for tenant in self.tenants for text in _tenant_failures(tenant)]
        if self.unattributed_us != 0:
            found.append(f"shares and overhead differ from the measured time by {self.unattributed_us} microseconds")
        return found


def _tenant_failures(tenant: TenantFigures) -> list[str]:
    checks = {
        f"loss fell only from {tenant.loss_first:.4f} to {tenant.loss_last:.4f}": (
            tenant.loss_last <= LOSS_MUST_FALL_TO * tenant.loss_first
        ),
        f"action error {tenant.action_error:.4f} is not below the mean action's {tenant.baseline_error:.4f}": (
            tenant.action_error < tenant.baseline_error
        ),
        f"mean group size is {tenant.group_size_mean:.2f}": tenant.group_size_mean > GROUP_SIZE_MIN,
        f"cost {tenant.cost} differs from priced usage {tenant.priced_usage}": tenant.cost == tenant.priced_usage,
        f"the reloaded adapter differs by {tenant.reload_max_diff:.2e}": (
            tenant.reload_max_diff <= RELOAD_DIFFERENCE_MAX
        ),
    }
    return [f"{tenant.name}: {text}" for text, holds in checks.items() if not holds]
