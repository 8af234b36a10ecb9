"""A glance at several jobs under way: the course of one curve each. Three queries for all."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q

from jobs.buckets import stored_width, width_for
from jobs.models import Job, MetricBucket, MetricCurve, MetricPoint
from tenants.models import Tenant
from tenants.scope import tenant_scope

_NUMBERS = 300  # newest numbers of a job's stream that are read point by point
_SHOWN = 60  # buckets a long curve is shown with, at least


def glances(tenant: Tenant, jobs: Sequence[Job], series: Mapping[str, str]) -> dict[UUID, tuple[float, ...]]:
    """By job: finite values of the present attempt, in the order of steps.

    ``series`` names the curve of each kind of job; a kind without one is left out.
    """
    shown = [job for job in jobs if job.kind in series]
    if not shown:
        return {}
    with tenant_scope(tenant):
        past, newest = _past(shown, series), _newest(shown, series)
    return {job.pk: _values(past.get(job.pk, []), newest.get(job.pk, [])) for job in shown}


_Step = tuple[int, float | None]  # step, value


def _past(jobs: Sequence[Job], series: Mapping[str, str]) -> dict[UUID, list[_Step]]:
    """Kept buckets of long curves, as many as a picture of the whole needs."""
    wanted = _any(Q(job=job, attempt=job.attempt, series=series[job.kind]) for job in jobs)
    curves = {curve.pk: curve for curve in MetricCurve.objects.filter(wanted) if curve.bucketed_to}
    if not curves:
        return {}
    rows = MetricBucket.objects.filter(_any(Q(curve=own, width=_width(own)) for own in curves.values()))
    found: defaultdict[UUID, list[_Step]] = defaultdict(list)
    for curve_id, *step in rows.order_by("curve", "number").values_list("curve_id", "last_step", "last"):
        found[curves[curve_id].job_id].append(tuple(step))  # type: ignore[arg-type]
    return found


def _width(curve: MetricCurve) -> int:
    """Of kept buckets; 0, which no bucket has, for a curve that is short enough to be read point by point."""
    width = stored_width(width_for(curve.first_step, curve.last_step, most=_SHOWN))
    return width if curve.points > _NUMBERS and width > 1 else 0


def _newest(jobs: Sequence[Job], series: Mapping[str, str]) -> dict[UUID, list[_Step]]:
    wanted = _any(
        Q(job=job, attempt=job.attempt, series=series[job.kind], seq__gt=job.last_seq - _NUMBERS) for job in jobs
    )
    found: defaultdict[UUID, list[_Step]] = defaultdict(list)
    rows = MetricPoint.objects.filter(wanted).order_by("job", "seq")
    for job_id, *step in rows.values_list("job_id", "step", "value"):
        found[job_id].append(tuple(step))  # type: ignore[arg-type]
    return found


def _any(parts: Any) -> Q:
    wanted = Q(pk=None)
    for part in parts:
        wanted |= part
    return wanted


def _values(past: list[_Step], newest: list[_Step]) -> tuple[float, ...]:
    begun = newest[0][0] if newest else 0
    steps = [*(step for step in past if step[0] < begun), *newest]
    return tuple(value for _, value in steps if value is not None)
