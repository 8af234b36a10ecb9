"""Curves: decimated without losing an extreme, and nothing that is not finite goes unflagged."""

import math

import pytest

from gpu_runtime.protocol.messages import MetricsRecorded
from jobs.selectors.series import series_read
from tests.support.jobs import relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def record(runtime: InMemoryRuntime, key: tuple[str, int], values: list[float], name: str = "loss") -> None:
    for step, value in enumerate(values, start=1):
        runtime.tell(*key, MetricsRecorded(step=step, values={name: value}))
    relay_all(runtime)


def test_few_points_come_as_they_are(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    record(runtime, key, [3.0, 2.0, 1.0])
    (curve,) = series_read(alice.tenant, job.pk).series
    assert (curve.name, curve.attempt, curve.shown, curve.total) == ("loss", 1, 3, 3)
    assert (curve.step, curve.last, curve.min, curve.max) == ([1, 2, 3], *[[3.0, 2.0, 1.0]] * 3)


def test_a_single_spike_among_many_points_survives(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    values = [1.0] * 700
    values[341] = 99.0
    record(runtime, key, values)
    (curve,) = series_read(alice.tenant, job.pk, max_points=50).series
    assert curve.total == 700
    assert curve.shown <= 50
    assert max(curve.max) == 99.0
    assert curve.step[-1] == 700


def test_every_bucket_spans_the_same_number_of_steps_and_keeps_its_last(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    record(runtime, key, [float(step) for step in range(1, 101)])
    (curve,) = series_read(alice.tenant, job.pk, max_points=10).series
    assert curve.width == 16
    assert curve.step == [15, 31, 47, 63, 79, 95, 100]
    assert curve.last == [float(step) for step in curve.step]
    assert curve.min == [float(max(step // 16 * 16, 1)) for step in curve.step]


def test_a_bucket_with_a_value_that_is_not_finite_says_so(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    record(runtime, key, [1.0, math.nan, 3.0, 4.0, math.inf, math.inf])
    (curve,) = series_read(alice.tenant, job.pk, max_points=3).series
    assert curve.step == [3, 6]
    assert curve.special == ["nan", "inf"]
    assert curve.last == [3.0, None]
    assert curve.max == [3.0, 4.0]


def test_each_bucket_has_the_moment_of_its_last_point(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    record(runtime, key, [1.0, 2.0])
    told = [event.occurred_at_us for event in runtime.journal if isinstance(event.body, MetricsRecorded)]
    (curve,) = alice.api.get(f"/api/v1/jobs/{job.pk}/metrics").json()["series"]
    assert curve["width"] == 1
    assert curve["time"] == [pytest.approx(us / 1e6, abs=1e-3) for us in told]


def test_a_range_of_steps_and_names_is_cut_out(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    record(runtime, key, [1.0, 2.0, 3.0, 4.0])
    record(runtime, key, [9.0], name="lr")
    answer = alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?series=loss&from=2&to=3").json()
    assert [(curve["name"], curve["step"]) for curve in answer["series"]] == [("loss", [2, 3])]
    assert alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?series=loss,").status_code == 422
    assert alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?max_points=0").status_code == 422


def test_asking_after_a_cursor_gives_only_newer_points(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    record(runtime, key, [1.0, 2.0])
    seq = alice.api.get(f"/api/v1/jobs/{job.pk}/metrics").json()["seq"]
    runtime.tell(*key, MetricsRecorded(step=3, values={"loss": 3.0}))
    relay_all(runtime)
    newer = alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?after={seq}").json()
    assert [curve["step"] for curve in newer["series"]] == [[3]]
    assert alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?after={newer['seq']}&wait=0.1").json()["series"] == []


def test_attempts_are_curves_of_their_own(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    record(runtime, key, [1.0, 2.0])
    from jobs.services.dispatch import job_dispatch
    from jobs.services.sweep import reconcile

    runtime.forget()
    reconcile(runtime=runtime)
    job_dispatch(job.pk, runtime=runtime)
    record(runtime, (str(job.pk), 2), [7.0])
    curves = series_read(alice.tenant, job.pk).series
    assert [(curve.attempt, curve.last) for curve in curves] == [(1, [1.0, 2.0]), (2, [7.0])]
