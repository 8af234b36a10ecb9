"""How busy a service was: measured steps in time buckets. Everybody's sum and one's own part, no other names."""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import BigIntegerField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from jobs.models import DeviceSpan
from jobs.selectors.kept import Kept, newest_span
from tenants.models import Tenant

WINDOW_S = 1800
BUCKET_S = 15
SERVICES = (TRAINING, INFERENCE, ENVIRONMENT) = ("training", "inference", "environment")  # in the order of colours
_BUCKET_US = BUCKET_S * 1_000_000
_EPOCH = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)


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


@dataclass(slots=True, kw_only=True)
class _Counted:
    """What one tenant may see of one service, up to a span. Buckets are numbered since 1970."""

    until: int = 0  # key of the newest span read
    busy_us: Counter[int] = field(default_factory=Counter)
    own_us: Counter[int] = field(default_factory=Counter)
    sizes: dict[int, Counter[int]] = field(default_factory=dict)  # bucket a step begins in -> group sizes

    def forget_before(self, first: int) -> None:
        """Drop buckets that have left the window."""
        for buckets in (self.busy_us, self.own_us, self.sizes):
            for bucket in [bucket for bucket in buckets if bucket < first]:
                del buckets[bucket]  # type: ignore[attr-defined]


_COUNTED: Kept[tuple[UUID, str], _Counted] = Kept(most=256)


def utilization_history(tenant: Tenant, *, service: str = TRAINING) -> UtilizationHistory:
    """Busy share of a service per bucket: a step's time lies in the buckets it went through.

    Environments are measured in process time; processes side by side (``group_size``) count as one that is busy, like
    the runtime's own figure does. The first read of a process goes through half an hour of spans, every other one
    through those that came since, late ones too. What is kept is the tenant's own: the others' shares stay in the
    database.
    """
    last = int(timezone.now().timestamp()) // BUCKET_S
    first = last - WINDOW_S // BUCKET_S
    with _COUNTED.value((tenant.pk, service), _Counted) as counted:
        _count_new(counted, tenant, service, first)
        sizes = sum(counted.sizes.values(), Counter[int]())
        return UtilizationHistory(
            bucket_s=BUCKET_S,
            time=[_begin(bucket).isoformat() for bucket in range(first, last + 1)],
            busy=[_share(counted.busy_us[bucket]) for bucket in range(first, last + 1)],
            own=[_share(counted.own_us[bucket]) for bucket in range(first, last + 1)],
            group_sizes=dict(sorted(sizes.items())),
        )


def _count_new(counted: _Counted, tenant: Tenant, service: str, first: int) -> None:
    """Add the spans since the last read."""
    newest = newest_span()
    own = Coalesce(Cast(KT(f"shares__{tenant.pk}"), BigIntegerField()), 0)
    spans = DeviceSpan.objects.filter(service=service, started_at__gte=_begin(first), pk__lte=newest)
    if counted.until:  # in the order of keys: by time, the database would look at the whole window again
        spans = spans.filter(pk__gt=counted.until).order_by("pk")
    rows = spans.annotate(own_us=own).values_list("started_at", "busy_us", "own_us", "group_size")
    for started_at, span_us, span_own_us, size in rows.iterator():
        side_by_side = max(1, size) if service == ENVIRONMENT else 1
        begin_us = (started_at - _EPOCH) // _MICROSECOND
        _spread(counted.busy_us, begin_us, span_us // side_by_side)
        _spread(counted.own_us, begin_us, span_own_us // side_by_side)
        if size:  # loading a base is a measured step of no group
            counted.sizes.setdefault(begin_us // _BUCKET_US, Counter())[size] += 1
    counted.until = newest
    counted.forget_before(first)


def _begin(bucket: int) -> datetime:
    return _EPOCH + timedelta(seconds=bucket * BUCKET_S)


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
