"""How busy the device was: measured steps in time buckets. Everybody's sum and one's own part, no other names."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from jobs.models import DeviceSpan
from tenants.models import Tenant

WINDOW_S = 1800
BUCKET_S = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationHistory:
    """The last half hour. ``busy[i]`` and ``own[i]`` are shares (0 to 1) of the bucket that begins at ``time[i]``."""

    bucket_s: int
    time: list[str]
    busy: list[float]
    own: list[float]
    group_sizes: dict[int, int]  # jobs per shared forward -> number of forwards

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def utilization_history(tenant: Tenant, *, service: str = "training") -> UtilizationHistory:
    """Busy share of a service per bucket. A step's time counts where it began."""
    now = timezone.now()
    begin_s = int(now.timestamp()) // BUCKET_S * BUCKET_S - WINDOW_S
    since = now - timedelta(seconds=now.timestamp() - begin_s)
    busy_us: Counter[int] = Counter()
    own_us: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    spans = DeviceSpan.objects.filter(service=service, started_at__gte=since)
    for span in spans.only("started_at", "busy_us", "shares", "group_size").iterator():
        bucket = (int(span.started_at.timestamp()) - begin_s) // BUCKET_S
        busy_us[bucket] += span.busy_us
        own_us[bucket] += span.shares.get(str(tenant.pk), 0)
        if span.group_size:  # loading a base is a measured step of no group
            sizes[span.group_size] += 1
    count = WINDOW_S // BUCKET_S + 1
    return UtilizationHistory(
        bucket_s=BUCKET_S,
        time=[(since + timedelta(seconds=i * BUCKET_S)).isoformat() for i in range(count)],
        busy=[_share(busy_us[i]) for i in range(count)],
        own=[_share(own_us[i]) for i in range(count)],
        group_sizes=dict(sorted(sizes.items())),
    )


def _share(busy_us: int) -> float:
    return min(1.0, busy_us / (BUCKET_S * 1_000_000))
