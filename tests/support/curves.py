"""What the buckets of a curve must be, worked out from its points alone, by other means than the platform's."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from jobs.buckets import WIDTHS
from jobs.models import Job, MetricBucket, MetricCurve, MetricPoint
from tenants.scope import platform_scope

RANK = {"": 0, "-inf": 1, "inf": 2, "nan": 3}  # of several, the worst is told
Row = tuple[int, datetime, float | None, str]  # step, moment, value, special


def decimated(rows: Sequence[Row], width: int) -> dict[int, dict[str, Any]]:
    """Number of the bucket -> what it holds."""
    numbers = sorted({step // width for step, *_ in rows})
    return {number: _bucket([row for row in rows if row[0] // width == number]) for number in numbers}


def _bucket(rows: Sequence[Row]) -> dict[str, Any]:
    newest = sorted(rows)[-1] if len({row[0] for row in rows}) == len(rows) else None
    assert newest is not None, "a step twice"
    finite = [value for _, _, value, _ in rows if value is not None]
    assert all(map(math.isfinite, finite))
    return {
        "points": len(rows),
        "last_step": newest[0],
        "last_at": newest[1],
        "last": newest[2],
        "low": min(finite) if finite else None,
        "high": max(finite) if finite else None,
        "special": max((row[3] for row in rows), key=RANK.__getitem__),
    }


def points_by_curve(job: Job) -> dict[tuple[str, int], list[Row]]:
    """(series, attempt) -> its points."""
    found: dict[tuple[str, int], list[Row]] = {}
    with platform_scope():
        for point in MetricPoint.objects.filter(job_id=job.pk):
            row = (point.step, point.occurred_at, point.value, point.special)
            found.setdefault((point.series, point.attempt), []).append(row)
    return found


def differences(job: Job) -> list[str]:
    """What is kept of the job's curves and is not what its points say; empty if all is well."""
    points = points_by_curve(job)
    with platform_scope():
        curves = {(curve.series, curve.attempt): curve for curve in MetricCurve.objects.filter(job_id=job.pk)}
        wrong = [f"{key}: no such curve" for key in points.keys() ^ curves.keys()]
        for key in points.keys() & curves.keys():
            wrong += _of_curve(curves[key], points[key])
    return wrong


def _of_curve(curve: MetricCurve, rows: list[Row]) -> list[str]:
    steps = [step for step, *_ in rows]
    told = (curve.points, curve.first_step, curve.last_step)
    wrong = [] if told == (len(steps), min(steps), max(steps)) else [f"{curve.series}: {told}"]
    if not curve.bucketed_to <= curve.last_step + 1 or curve.bucketed_to + WIDTHS[0] <= curve.last_step:
        wrong.append(f"{curve.series}: kept up to {curve.bucketed_to} of {curve.last_step}")
    expected = {
        (width, number): bucket
        for width in WIDTHS
        for number, bucket in decimated(rows, width).items()
        if (number + 1) * width <= curve.bucketed_to
    }
    kept = {
        (bucket.width, bucket.number): {name: getattr(bucket, name) for name in _NAMES}
        for bucket in MetricBucket.objects.filter(curve_id=curve.pk)
    }
    return wrong + [
        f"{curve.series} {place}: {kept.get(place)} is not {expected.get(place)}"
        for place in expected.keys() | kept.keys()
        if kept.get(place) != expected.get(place)
    ]


_NAMES = ("points", "last_step", "last_at", "last", "low", "high", "special")
