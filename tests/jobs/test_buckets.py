"""Kept buckets are those of the points, however they came; and a page reads few rows for any range."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_runtime.protocol.messages import MetricsRecorded
from jobs.buckets import WIDTHS, cover, stored_width, width_for
from jobs.models import Job, MetricBucket, MetricCurve, MetricPoint
from jobs.selectors.buckets import curves_read
from jobs.services.curves import points_add
from tenants.scope import platform_scope, tenant_scope
from tests.support.curves import decimated, differences, points_by_curve
from tests.support.jobs import make_job, relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
LONG = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

steps = st.one_of(st.integers(0, 70), st.integers(0, 2200), st.sampled_from([8191, 8192, 32767, 32768, 70_000]))
values = st.one_of(st.floats(-10, 10), st.sampled_from(["nan", "inf", "-inf"]))
point = st.tuples(steps, st.sampled_from(["loss", "return"]), st.integers(1, 2), values)
batches = st.lists(st.lists(point, min_size=1, max_size=40), min_size=1, max_size=6)


class Undone(Exception):
    """Each example leaves nothing behind."""


def undone(work: Callable[[], None]) -> None:
    try:
        with transaction.atomic():
            work()
            raise Undone
    except Undone:
        pass


def row(job: Job, seq: int, step: int, series: str, attempt: int, value: float | str) -> MetricPoint:
    special = value if isinstance(value, str) else ""
    return MetricPoint(
        tenant_id=job.tenant_id,
        job_id=job.pk,
        seq=seq,
        attempt=attempt,
        series=series,
        step=step,
        value=None if special else value,
        special=special,
        occurred_at=BEGAN + timedelta(seconds=seq),
    )


def add(job: Job, batch: Iterable[tuple[int, str, int, float | str]], first_seq: int) -> None:
    with platform_scope():
        points_add([row(job, first_seq + i, *told) for i, told in enumerate(batch)])


def in_order(job: Job, count: int, *, series: str = "loss", per_batch: int = 500) -> None:
    for start in range(0, count, per_batch):
        told = [(step, series, 1, float(step % 97)) for step in range(start, min(start + per_batch, count))]
        add(job, told, start)


def told(job: Job, **wanted: Any) -> dict[tuple[str, int], Any]:
    asked = {"names": (), "from_step": None, "to_step": None, "max_points": 500} | wanted
    with tenant_scope(job.tenant):
        return {(curve.name, curve.attempt): curve for curve in curves_read(job.pk, **asked)}


@LONG
@given(batches=batches)
def test_kept_buckets_are_those_of_the_points_in_any_order_of_arrival(alice: Person, batches: list[Any]) -> None:
    job = make_job(alice)

    def work() -> None:
        first: dict[tuple[int, str, int], float | str] = {}
        for number, batch in enumerate(batches):
            add(job, batch, 1000 * number)
            for step, series, attempt, value in batch:
                first.setdefault((step, series, attempt), value)
            assert differences(job) == []
        points = points_by_curve(job)
        kept = {(p[0], *key): p[3] or p[2] for key, rows in points.items() for p in rows}
        assert kept == first  # a step told twice keeps what was told first

    undone(work)


@LONG
@given(batches=batches, bounds=st.tuples(steps, steps), most=st.integers(1, 60))
def test_any_range_at_any_width_is_the_decimation_of_its_points(
    alice: Person, batches: list[Any], bounds: tuple[int, int], most: int
) -> None:
    job = make_job(alice)
    low, high = sorted(bounds)

    def work() -> None:
        for number, batch in enumerate(batches):
            add(job, batch, 1000 * number)
        answer = told(job, from_step=low, to_step=high, max_points=most)
        within = {key: [row for row in rows if low <= row[0] <= high] for key, rows in points_by_curve(job).items()}
        assert answer.keys() == {key for key, rows in within.items() if rows}
        for key, curve in answer.items():
            expected = decimated(within[key], curve.width)
            assert curve.shown <= most or curve.width == 1
            assert curve.total == len(within[key])
            columns = (curve.step, curve.last, curve.min, curve.max, [flag or "" for flag in curve.special])
            names = ("last_step", "last", "low", "high", "special")
            assert columns == tuple([bucket[name] for bucket in expected.values()] for name in names)
            assert curve.time == [bucket["last_at"].timestamp() for bucket in expected.values()]

    undone(work)


@given(start=st.integers(0, 100_000), length=st.integers(0, 100_000), width=st.sampled_from([1, *WIDTHS]))
def test_a_cover_is_every_step_once_in_few_spans(start: int, length: int, width: int) -> None:
    spans = cover(start, start + length, width=width)
    at = start
    for span in spans:
        assert span.first * span.width == at
        at = span.stop * span.width
    assert at == start + length
    narrow = sum(span.stop - span.first for span in spans if span.width < stored_width(width))
    assert narrow <= 2 * 7 + 2 * 3 * len(WIDTHS) or width == 1


@given(low=st.integers(0, 10_000_000), length=st.integers(0, 10_000_000), most=st.integers(1, 2000))
def test_the_width_is_the_smallest_power_of_two_that_fits(low: int, length: int, most: int) -> None:
    high = low + length
    width = width_for(low, high, most=most)
    assert high // width - low // width + 1 <= most
    assert width == 1 or high // (width // 2) - low // (width // 2) + 1 > most


@pytest.mark.parametrize(
    "plant",
    [
        lambda bucket: MetricBucket.objects.filter(pk=bucket.pk).update(high=0.5),
        lambda bucket: MetricBucket.objects.filter(pk=bucket.pk).update(points=9),
        lambda bucket: MetricBucket.objects.filter(pk=bucket.pk).update(special="nan"),
        lambda bucket: bucket.delete(),
        lambda bucket: MetricCurve.objects.filter(pk=bucket.curve_id).update(points=1),
        lambda bucket: MetricPoint.objects.filter(step=11).delete(),
    ],
    ids=["extreme", "counted twice", "flag", "missing", "total", "point gone"],
)
def test_a_planted_violation_is_found(alice: Person, plant: Callable[[MetricBucket], object]) -> None:
    job = make_job(alice)
    in_order(job, 100)
    assert differences(job) == []
    with platform_scope():
        plant(MetricBucket.objects.get(curve__job_id=job.pk, width=8, number=1))
    assert differences(job)


def test_a_step_told_again_is_not_counted_again(alice: Person) -> None:
    job = make_job(alice)
    in_order(job, 40)
    add(job, [(step, "loss", 1, 1e9) for step in range(20, 60)], 1000)
    assert differences(job) == []
    (curve,) = told(job, max_points=10).values()
    assert (curve.total, max(curve.max)) == (60, 1e9)
    assert max(value for step, value in zip(curve.step, curve.max, strict=True) if step < 40) < 97


def test_points_that_were_there_before_their_buckets_are_read_and_bucketed_with_the_next(alice: Person) -> None:
    job = make_job(alice)
    in_order(job, 100)
    with platform_scope():
        MetricBucket.objects.filter(curve__job_id=job.pk).delete()
        MetricCurve.objects.filter(job_id=job.pk).update(bucketed_to=0)
    (curve,) = told(job, max_points=10).values()
    assert (curve.total, curve.step[-1]) == (100, 99)
    add(job, [(step, "loss", 1, 1.0) for step in range(100, 140)], 1000)
    assert differences(job) == []


def test_a_page_of_many_points_reads_few_rows_in_few_queries(alice: Person) -> None:
    job = make_job(alice)
    for series in ("loss", "grad", "speed"):
        in_order(job, 20_000, series=series, per_batch=5000)
    for wanted in ({}, {"from_step": 3, "to_step": 17_777}, {"from_step": 4001, "to_step": 4999}):
        with CaptureQueriesContext(connection) as queries:
            answer = told(job, max_points=1000, **wanted)
        assert len(queries) < 20  # of three curves that go equally far: as many as of one
        assert all(curve.shown <= 1000 for curve in answer.values())
    with platform_scope():
        assert MetricBucket.objects.filter(curve__series="loss").count() < 20_000 / 5


def test_a_job_that_is_deleted_takes_its_curves_with_it(alice: Person) -> None:
    job = make_job(alice)
    in_order(job, 50)
    with platform_scope():
        job.delete()
        assert not MetricCurve.objects.exists()
        assert not MetricBucket.objects.exists()


def test_what_the_journal_tells_is_bucketed_with_it(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    for step in (*range(1, 30), *range(25, 50), 3):
        runtime.tell(*key, MetricsRecorded(step=step, values={"loss": float(step), "lr": 0.1}))
    relay_all(runtime)
    assert differences(job) == []
    assert {curve.total for curve in told(job).values()} == {49}
