"""Metric points as rows, and the buckets that pages read instead of them. Both change in one transaction.

A bucket is written once, when its curve has passed its end; what lies beyond ``bucketed_to`` is read point by point.
So a step costs no more than its points and one row per curve, and a late point is merged into buckets that exist.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q

from jobs.buckets import WIDTHS, Bucket, bucket_of, by_width, merged
from jobs.models import MetricBucket, MetricCurve, MetricPoint

_BATCH = 500
_COLUMNS = Bucket._fields
_NEWEST = ["points", "first_step", "last_step", "bucketed_to"]

Key = tuple[UUID, int, str]  # job, attempt, series


def points_add(points: Iterable[MetricPoint]) -> None:
    """Store the points that are new; a step that a curve has already keeps its first value.

    The jobs' rows are locked by the caller (``seq_reserve``), so nobody else adds to their curves meanwhile.
    """
    told: defaultdict[Key, dict[int, MetricPoint]] = defaultdict(dict)
    for point in points:
        told[point.job_id, point.attempt, point.series].setdefault(point.step, point)
    if not told:
        return
    known = _curves(told)
    growths = [_growth(known.get(key), key, steps) for key, steps in told.items()]
    growths = [growth for growth in growths if growth.fresh]
    parts = _base(growths)
    fresh = [point for growth in growths for point in growth.fresh.values()]
    MetricPoint.objects.bulk_create(fresh, ignore_conflicts=True, batch_size=_BATCH)
    _store_curves(growths)
    _merge_late(growths)  # first: what is closed now is made of buckets that have their late points
    _close(growths, parts)


@dataclass(slots=True, kw_only=True)
class _Growth:
    """What a batch adds to one curve; ``was`` is how far its buckets went before."""

    curve: MetricCurve
    was: int
    fresh: dict[int, MetricPoint] = field(default_factory=dict)  # by step

    @property
    def late(self) -> list[Bucket]:
        return [_part(point) for step, point in self.fresh.items() if step < self.was]


def _part(point: MetricPoint) -> Bucket:
    return bucket_of(point.step, point.occurred_at, point.value, point.special)


def _curves(told: dict[Key, dict[int, MetricPoint]]) -> dict[Key, MetricCurve]:
    jobs, attempts, series = (set(column) for column in zip(*told, strict=True))
    rows = MetricCurve.objects.filter(job_id__in=jobs, attempt__in=attempts, series__in=series)
    return {(row.job_id, row.attempt, row.series): row for row in rows}


def _growth(curve: MetricCurve | None, key: Key, steps: dict[int, MetricPoint]) -> _Growth:
    """The points that are new, and the curve with them."""
    low, high = min(steps), max(steps)
    if curve is None:
        job_id, attempt, series = key
        curve = MetricCurve(
            tenant_id=steps[low].tenant_id,
            job_id=job_id,
            attempt=attempt,
            series=series,
            points=0,
            first_step=low,
            last_step=high,
        )
    growth = _Growth(curve=curve, was=curve.bucketed_to, fresh=steps)
    if curve.points and low <= curve.last_step:
        own = MetricPoint.objects.filter(job_id=curve.job_id, attempt=curve.attempt, series=curve.series)
        there = set(own.filter(step__in=list(steps)).values_list("step", flat=True))
        growth.fresh = {step: point for step, point in steps.items() if step not in there}
    if growth.fresh:
        curve.points += len(growth.fresh)
        curve.first_step, curve.last_step = min(curve.first_step, low), max(curve.last_step, high)
        curve.bucketed_to = (curve.last_step + 1) // WIDTHS[0] * WIDTHS[0]
    return growth


def _base(growths: Sequence[_Growth]) -> dict[Key, list[Bucket]]:
    """By curve, the points that its next buckets are made of: those that wait in the table, and the new ones."""
    parts: dict[Key, list[Bucket]] = {}
    waiting: defaultdict[tuple[UUID, int, int, int], list[str]] = defaultdict(list)
    for growth in growths:
        curve = growth.curve
        if curve.bucketed_to == growth.was:
            continue
        span = range(growth.was, curve.bucketed_to)
        parts[_key(curve)] = [_part(point) for step, point in growth.fresh.items() if step in span]
        if curve.pk:
            waiting[curve.job_id, curve.attempt, growth.was, curve.bucketed_to].append(curve.series)
    for (job_id, attempt, start, stop), series in waiting.items():
        rows = MetricPoint.objects.filter(job_id=job_id, attempt=attempt, series__in=series)
        rows = rows.filter(step__gte=start, step__lt=stop)
        for name, step, at, value, special in rows.values_list("series", "step", "occurred_at", "value", "special"):
            parts[job_id, attempt, name].append(bucket_of(step, at, value, special))
    return parts


def _key(curve: MetricCurve) -> Key:
    return curve.job_id, curve.attempt, curve.series


def _store_curves(growths: Sequence[_Growth]) -> None:
    known = [growth.curve for growth in growths if growth.curve.pk]
    MetricCurve.objects.bulk_create([g.curve for g in growths if not g.curve.pk], batch_size=_BATCH)
    MetricCurve.objects.bulk_create(
        known, update_conflicts=True, unique_fields=["id"], update_fields=_NEWEST, batch_size=_BATCH
    )


def _close(growths: Sequence[_Growth], parts: dict[Key, list[Bucket]]) -> None:
    """Write the buckets whose ends the curves have passed, each width from the one below it."""
    passed = [growth for growth in growths if growth.curve.bucketed_to > growth.was]
    closed: list[MetricBucket] = []
    below = {growth.curve.pk: parts[_key(growth.curve)] for growth in passed}
    for width in WIDTHS:
        passed = [growth for growth in passed if growth.curve.bucketed_to // width > growth.was // width]
        if not passed:
            break
        if width != WIDTHS[0]:
            _add_stored(passed, below, width)
        for growth in passed:
            curve, stop = growth.curve, growth.curve.bucketed_to // width * width
            whole = by_width((part for part in below[curve.pk] if part.last_step < stop), width)
            closed += [_row(curve, width, number, bucket) for number, bucket in whole.items()]
            below[curve.pk] = list(whole.values())
    MetricBucket.objects.bulk_create(closed, batch_size=_BATCH)


def _add_stored(passed: Sequence[_Growth], below: dict[int, list[Bucket]], width: int) -> None:
    """The narrower buckets that were written before, of those that now make a whole one."""
    narrower = WIDTHS[WIDTHS.index(width) - 1]
    spans: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for growth in passed:
        spans[growth.was // width * width // narrower, growth.was // narrower].append(growth.curve.pk)
    for (first, stop), curves in spans.items():
        if first == stop:
            continue
        rows = MetricBucket.objects.filter(curve_id__in=curves, width=narrower, number__gte=first, number__lt=stop)
        for curve_id, *columns in rows.values_list("curve_id", *_COLUMNS):
            below[curve_id].append(Bucket(*columns))


def _merge_late(growths: Sequence[_Growth]) -> None:
    """Points of steps that buckets were written for already."""
    for growth in growths:
        if late := growth.late:
            found = {(w, n): b for w in WIDTHS for n, b in by_width(late, w).items() if (n + 1) * w <= growth.was}
            _merge(growth.curve, found)


def _merge(curve: MetricCurve, late: dict[tuple[int, int], Bucket]) -> None:
    wanted = Q()
    for width, number in late:
        wanted |= Q(width=width, number=number)
    rows = MetricBucket.objects.filter(wanted, curve_id=curve.pk).values_list("width", "number", *_COLUMNS)
    there = {(width, number): Bucket(*columns) for width, number, *columns in rows}
    changed = [
        _row(curve, *place, merged([there[place], bucket]) if place in there else bucket)
        for place, bucket in late.items()
    ]
    MetricBucket.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["curve", "width", "number"],
        update_fields=_COLUMNS,
        batch_size=_BATCH,
    )


def _row(curve: MetricCurve, width: int, number: int, bucket: Bucket) -> MetricBucket:
    values = dict(zip(_COLUMNS, bucket, strict=True))
    return MetricBucket(tenant_id=curve.tenant_id, curve_id=curve.pk, width=width, number=number, **values)
