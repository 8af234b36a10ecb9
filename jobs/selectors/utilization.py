"""How busy a service was: measured steps in time buckets. Everybody's sum and one's own part, no other names."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from jobs.selectors.spans import (
    BUCKET_S,
    BUCKET_US,
    ENVIRONMENT,
    INFERENCE,
    SERVICES,
    TRAINING,
    WINDOW_S,
    begin_of,
    counted,
    window_of,
)
from tenants.models import Tenant

__all__ = [
    "BUCKET_S",
    "ENVIRONMENT",
    "INFERENCE",
    "SERVICES",
    "TRAINING",
    "WINDOW_S",
    "UtilizationHistory",
    "utilization_history",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationHistory:
    """The last half hour. ``busy[i]`` and ``own[i]`` are shares (0 to 1) of the bucket that begins at ``time[i]``."""

    bucket_s: int
    time: list[str]
    busy: list[float]
    own: list[float]
    group_sizes: dict[int, int]  # jobs per shared forward -> number of forwards

    @property
    def busy_share(self) -> float:
        """Of the whole half hour, whole buckets only."""
        return _mean(self.busy)

    @property
    def own_share(self) -> float:
        return _mean(self.own)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def utilization_history(tenant: Tenant, *, service: str = TRAINING) -> UtilizationHistory:
    """Busy share of a service per bucket: a step's time lies in the buckets it went through.

    Environments are measured in process time; processes side by side (``group_size``) count as one that is busy, like
    the runtime's own figure does. Of shares only the tenant's own leave the counts of this process.
    """
    window = window_of(timezone.now())
    own = str(tenant.pk)
    with counted(service, window) as known:
        sizes = sum(known.sizes.values(), Counter[int]())
        return UtilizationHistory(
            bucket_s=BUCKET_S,
            time=[begin_of(bucket).isoformat() for bucket in window.buckets],
            busy=[_share(known.busy_us[bucket]) for bucket in window.buckets],
            own=[_share(known.of(own, bucket)) for bucket in window.buckets],
            group_sizes=dict(sorted(sizes.items())),
        )


def _share(busy_us: int) -> float:
    return min(1.0, busy_us / BUCKET_US)


def _mean(shares: list[float]) -> float:
    """The last bucket is not over yet."""
    whole = shares[:-1]
    return sum(whole) / len(whole) if whole else 0.0
