"""How busy a service was: measured steps in time buckets. Everybody's sum and one's own part, no other names."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import BigIntegerField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from jobs.models import DeviceSpan
from tenants.models import Tenant

WINDOW_S = 1800
BUCKET_S = 15
SERVICES = (TRAINING, INFERENCE, ENVIRONMENT) = ("training", "inference", "environment")  # in the order of colours
_BUCKET_US = BUCKET_S * 1_000_000


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


def utilization_history(tenant: Tenant, *, service: str = TRAINING) -> UtilizationHistory:
    """Busy share of a service per bucket: a step's time lies in the buckets it went through.

    Environments are measured in process time; processes side by side (``group_size``) count as one that is busy, like
    the runtime's own figure does.
    """
    now = timezone.now()
    begin_s = int(now.timestamp()) // BUCKET_S * BUCKET_S - WINDOW_S
    since = now - timedelta(seconds=now.timestamp() - begin_s)
    busy_us: Counter[int] = Counter()
    own_us: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    own = Coalesce(Cast(KT(f"shares__{tenant.pk}"), BigIntegerField()), 0)  # the others' shares stay in the database
    spans = DeviceSpan.objects.filter(service=service, started_at__gte=since).annotate(own_us=own)
    for started_at, span_us, span_own_us, size in spans.values_list(
        "started_at", "busy_us", "own_us", "group_size"
    ).iterator():
        side_by_side = max(1, size) if service == ENVIRONMENT else 1
        begin_us = round((started_at.timestamp() - begin_s) * 1_000_000)
        _spread(busy_us, begin_us, span_us // side_by_side)
        _spread(own_us, begin_us, span_own_us // side_by_side)
        if size:  # loading a base is a measured step of no group
            sizes[size] += 1
    count = WINDOW_S // BUCKET_S + 1
    return UtilizationHistory(
        bucket_s=BUCKET_S,
        time=[(since + timedelta(seconds=i * BUCKET_S)).isoformat() for i in range(count)],
        busy=[_share(busy_us[i]) for i in range(count)],
        own=[_share(own_us[i]) for i in range(count)],
        group_sizes=dict(sorted(sizes.items())),
    )


def _spread(counted_us: Counter[int], begin_us: int, length_us: int) -> None:
    """Add a stretch of time to the buckets it goes through."""
    end_us = begin_us + length_us
    while begin_us < end_us:
        bucket = begin_us // _BUCKET_US
        until_us = min(end_us, (bucket + 1) * _BUCKET_US)
        counted_us[bucket] += until_us - begin_us
        begin_us = until_us


def _share(busy_us: int) -> float:
    return min(1.0, busy_us / _BUCKET_US)
