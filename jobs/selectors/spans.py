"""Measured steps added up in buckets of time: by the database where a step lies in one bucket, else here.

This is everybody's time by tenant, kept in this process and never shown as it is: `utilization` and `fairness` give a
tenant its own part and sums over all.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from jobs.models import DeviceSpan
from jobs.selectors.kept import Kept, newest_span
from jobs.selectors.span_sql import BUCKET_S, STATEMENTS

WINDOW_S = 1800
SERVICES = (TRAINING, INFERENCE, ENVIRONMENT) = ("training", "inference", "environment")  # in the order of colours
ON_DEVICE = (TRAINING, INFERENCE)  # simulators compute on their own processors, and have seats instead of shares
BUCKET_US = BUCKET_S * 1_000_000
_EPOCH = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)
_ROWS_AT_ONCE = 500  # keys in one statement


@dataclass(slots=True, kw_only=True)
class Counted:
    """One service up to a span. Buckets are numbered since 1970; times in microseconds.

    Environments are measured in process time; processes side by side (``group_size``) count as one that is busy, like
    the runtime's own figure does: a step's length and its shares are divided by it, rounded down.
    """

    until: int = 0  # key of the newest span read
    anchor: tuple[object, ...] | None = None  # what that span was
    busy_us: Counter[int] = field(default_factory=Counter)
    shares_us: dict[int, Counter[str]] = field(default_factory=dict)  # bucket -> tenant id -> its time
    sizes: dict[int, Counter[int]] = field(default_factory=dict)  # bucket a step begins in -> group sizes

    def forget_before(self, first: int) -> None:
        """Drop buckets that have left the window."""
        for buckets in (self.busy_us, self.shares_us, self.sizes):
            for bucket in [bucket for bucket in buckets if bucket < first]:
                del buckets[bucket]  # type: ignore[attr-defined]

    def of(self, tenant_id: str, bucket: int) -> int:
        """One tenant's time in a bucket."""
        parts = self.shares_us.get(bucket)
        return parts[tenant_id] if parts else 0

    def forget(self) -> None:
        """Begin anew."""
        self.until, self.anchor = 0, None
        self.busy_us.clear()
        self.shares_us.clear()
        self.sizes.clear()

    def add(self, bucket: int, *, busy_us: int, shares_us: dict[str, int]) -> None:
        self.busy_us[bucket] += busy_us
        if shares_us:
            self.shares_us.setdefault(bucket, Counter()).update(shares_us)

    def add_sizes(self, bucket: int, size: int, steps: int) -> None:
        """Loading a base is a measured step of no group: size 0."""
        if size:
            self.sizes.setdefault(bucket, Counter())[size] += steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Buckets ``first`` to ``last`` (included); the last is the one that is not over."""

    first: int
    last: int

    @property
    def buckets(self) -> range:
        return range(self.first, self.last + 1)


_COUNTED: Kept[str, Counted] = Kept(most=len(SERVICES))


def window_of(now: datetime) -> Window:
    """The last half hour."""
    last = int(now.timestamp()) // BUCKET_S
    return Window(first=last - WINDOW_S // BUCKET_S, last=last)


def begin_of(bucket: int) -> datetime:
    return _EPOCH + timedelta(seconds=bucket * BUCKET_S)


@contextmanager
def counted(service: str, window: Window) -> Iterator[Counted]:
    """The service's buckets, up to date, for the time of the block; one thread at a time has them.

    The first read of a process has the database add up half an hour of spans, every other one those that came since,
    late ones too.
    """
    with _COUNTED.value(service, Counted) as known:
        if known.until and _anchor(known.until) != known.anchor:  # another database, or a restored one
            known.forget()
        _count_new(known, service, window.first)
        yield known


def _count_new(known: Counted, service: str, first: int) -> None:
    newest = newest_span()
    if newest > known.until:
        _count(known, service, begin_of(first), after=known.until, newest=newest)
        known.until, known.anchor = newest, _anchor(newest)
    known.forget_before(first)


def _anchor(key: int) -> tuple[object, ...] | None:
    """By what a span is known again."""
    return DeviceSpan.objects.filter(pk=key).values_list("journal_id", "span_id", "started_at").first()


def _count(known: Counted, service: str, since: datetime, *, after: int, newest: int) -> None:
    """Steps that lie in one bucket are added up by the database, the few others one by one."""
    moment = connection.ops.adapt_datetimefield_value(since)
    values: dict[str, Any] = {"service": service, "since": moment, "after": after, "newest": newest}
    sql = STATEMENTS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(sql.sums(service == ENVIRONMENT), values)
        for bucket, size, steps, busy_us in cursor.fetchall():
            known.add(bucket, busy_us=int(busy_us), shares_us={})
            known.add_sizes(bucket, size, steps)
        cursor.execute(sql.shares(service == ENVIRONMENT), values)
        for bucket, tenant_id, own_us in cursor.fetchall():
            known.add(bucket, busy_us=0, shares_us={tenant_id: int(own_us)})
        cursor.execute(sql.crossing(service == ENVIRONMENT), values)
        keys = [key for (key,) in cursor.fetchall()]
    for start in range(0, len(keys), _ROWS_AT_ONCE):
        spans = DeviceSpan.objects.filter(pk__in=keys[start : start + _ROWS_AT_ONCE])
        for row in spans.values_list("started_at", "busy_us", "group_size", "shares"):
            _spread(known, service, *row)


def _spread(known: Counted, service: str, started_at: datetime, busy_us: int, size: int, shares: Any) -> None:
    """A step's time, and each tenant's part of it, lie in the buckets it went through."""
    side_by_side = max(1, size) if service == ENVIRONMENT else 1
    begin_us = (started_at - _EPOCH) // _MICROSECOND
    known.add_sizes(begin_us // BUCKET_US, size, 1)
    for bucket, part_us in _pieces(begin_us, busy_us // side_by_side):
        known.add(bucket, busy_us=part_us, shares_us={})
    for tenant_id, own_us in shares.items():
        for bucket, part_us in _pieces(begin_us, own_us // side_by_side):
            known.add(bucket, busy_us=0, shares_us={tenant_id: part_us})


def _pieces(begin_us: int, length_us: int) -> Iterator[tuple[int, int]]:
    """A stretch of time, cut at the buckets' ends."""
    end_us = begin_us + length_us
    while begin_us < end_us:
        bucket = begin_us // BUCKET_US
        until_us = min(end_us, (bucket + 1) * BUCKET_US)
        yield bucket, until_us - begin_us
        begin_us = until_us
