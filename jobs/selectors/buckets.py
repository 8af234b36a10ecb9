"""A job's curves, decimated: read from the buckets that are kept of them, point by point only where there are none.

A curve costs at most twice the rows that it is shown with, four times below the narrowest kept width, plus its newest
points; all curves that go equally far are read together.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from uuid import UUID

from jobs.buckets import Bucket, Span, bucket_of, by_width, cover, stored_width, width_for
from jobs.models import MetricBucket, MetricCurve, MetricPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve of one attempt, column by column: ``shown`` buckets of ``total`` points, ``width`` steps each.

    Bucket n holds the steps from ``n * width``, so those of two answers with one width are the same buckets.
    ``last[i]`` is the value at ``step[i]``, told at ``time[i]`` (seconds since 1970); ``min[i]``/``max[i]`` span the
    bucket; null where nothing is finite. ``special[i]`` is "nan", "inf" or "-inf" if a value is that, else null.
    """

    name: str
    attempt: int
    total: int
    shown: int
    width: int
    step: list[int]
    time: list[float]
    last: list[float | None]
    min: list[float | None]
    max: list[float | None]
    special: list[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One curve within the steps that were asked for."""

    curve: MetricCurve
    low: int
    high: int
    width: int

    @property
    def spans(self) -> tuple[Span, ...]:
        """What it is made of: kept buckets up to where they go, then points."""
        kept = min(self.high + 1, self.curve.bucketed_to)
        beyond = max(self.low, kept)
        parts = cover(self.low, kept, width=stored_width(self.width))
        return (*parts, Span(1, beyond, self.high + 1)) if beyond <= self.high else tuple(parts)


def curves_read(
    job_id: UUID, *, names: tuple[str, ...], from_step: int | None, to_step: int | None, max_points: int
) -> list[Series]:
    """Curves by name and attempt; those without a point in the range are left out. Needs the tenant's scope."""
    curves = MetricCurve.objects.filter(job_id=job_id)
    if names:
        curves = curves.filter(series__in=names)
    wanted = [_wanted(curve, from_step, to_step, max_points) for curve in curves.order_by("series", "attempt")]
    wanted = [one for one in wanted if one.low <= one.high]
    parts = _parts(job_id, wanted)
    return [
        series_of(one.curve.series, one.curve.attempt, by_width(parts[one.curve.pk], one.width), one.width)
        for one in wanted
        if parts[one.curve.pk]
    ]


def _wanted(curve: MetricCurve, from_step: int | None, to_step: int | None, max_points: int) -> _Wanted:
    low = curve.first_step if from_step is None else max(curve.first_step, from_step)
    high = curve.last_step if to_step is None else min(curve.last_step, to_step)
    width = 1 if curve.points <= max_points or high < low else width_for(low, high, most=max_points)
    return _Wanted(curve=curve, low=low, high=high, width=width)


def _parts(job_id: UUID, wanted: list[_Wanted]) -> dict[int, list[Bucket]]:
    """Buckets and points by curve."""
    parts: dict[int, list[Bucket]] = {one.curve.pk: [] for one in wanted}
    alike: defaultdict[tuple[Span, ...], list[MetricCurve]] = defaultdict(list)
    for one in wanted:
        alike[one.spans].append(one.curve)
    for spans, curves in alike.items():
        for curve_id, bucket in _stored([span for span in spans if span.width > 1], curves):
            parts[curve_id].append(bucket)
        for curve_id, bucket in _points(job_id, [span for span in spans if span.width == 1], curves):
            parts[curve_id].append(bucket)
    return parts


def _stored(spans: list[Span], curves: list[MetricCurve]) -> Iterator[tuple[int, Bucket]]:
    ids = [curve.pk for curve in curves]
    for width, first, stop in spans:
        rows = MetricBucket.objects.filter(curve_id__in=ids, width=width, number__gte=first, number__lt=stop)
        for curve_id, *columns in rows.values_list("curve_id", *Bucket._fields):
            yield curve_id, Bucket(*columns)


def _points(job_id: UUID, spans: list[Span], curves: list[MetricCurve]) -> Iterator[tuple[int, Bucket]]:
    """A query per span: databases scan a whole curve for a choice of ranges."""
    ids = {(curve.attempt, curve.series): curve.pk for curve in curves}
    series = {curve.series for curve in curves}
    for attempt, (_, first, stop) in product({curve.attempt for curve in curves}, spans):
        rows = MetricPoint.objects.filter(job_id=job_id, attempt=attempt, series__in=series)
        rows = rows.filter(step__gte=first, step__lt=stop)
        for name, step, at, value, special in rows.values_list("series", "step", "occurred_at", "value", "special"):
            if curve_id := ids.get((attempt, name)):
                yield curve_id, bucket_of(step, at, value, special)


def series_of(name: str, attempt: int, buckets: dict[int, Bucket], width: int) -> Series:
    """The form that is told."""
    points, step, at, last, low, high, special = zip(*buckets.values(), strict=True)
    return Series(
        name=name,
        attempt=attempt,
        total=sum(points),
        shown=len(step),
        width=width,
        step=list(step),
        time=[_seconds(moment) for moment in at],
        last=list(last),
        min=list(low),
        max=list(high),
        special=[flag or None for flag in special],
    )


def _seconds(moment: datetime) -> float:
    return round(moment.timestamp(), 3)
