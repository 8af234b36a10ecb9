"""How busy each service was: a step's time lies where it was spent, process time of environments side by side once."""

import random
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import DeviceSpan
from jobs.selectors import spans
from jobs.selectors.kept import Kept
from jobs.selectors.utilization import (
    BUCKET_S,
    ENVIRONMENT,
    INFERENCE,
    SERVICES,
    TRAINING,
    WINDOW_S,
    utilization_history,
)
from tests.support.jobs import relay_all
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def span(person: Person, service: str, *, busy_s: float, ago_s: float = 300, size: int = 1) -> None:
    busy_us = round(busy_s * 1_000_000)
    DeviceSpan.objects.create(
        journal_id="j",
        span_id=f"{DeviceSpan.objects.count()}",
        service=service,
        started_at=timezone.now() - timedelta(seconds=ago_s),
        busy_us=busy_us,
        overhead_us=0,
        group_size=size,
        samples=1,
        tokens=1,
        shares={str(person.tenant.pk): busy_us},
    )


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_has_a_history_of_its_own(alice: Person, service: str) -> None:
    span(alice, service, busy_s=3)
    for other in SERVICES:
        expected = 3 / BUCKET_S if other == service else 0
        assert sum(utilization_history(alice.tenant, service=other).busy) == pytest.approx(expected)


@pytest.mark.parametrize("service", [TRAINING, INFERENCE])
def test_a_long_step_fills_the_buckets_it_went_through(alice: Person, charlie: Person, service: str) -> None:
    span(alice, service, busy_s=4 * BUCKET_S, size=3)
    history = utilization_history(alice.tenant, service=service)
    assert sum(history.busy) == pytest.approx(4)
    assert max(history.busy) == pytest.approx(1)
    assert 4 <= sum(share > 0 for share in history.busy) <= 5
    assert history.own == history.busy
    assert sum(utilization_history(charlie.tenant, service=service).own) == 0


def test_environments_side_by_side_are_one_busy_service(alice: Person) -> None:
    span(alice, ENVIRONMENT, busy_s=4 * BUCKET_S, size=4)
    assert sum(utilization_history(alice.tenant, service=ENVIRONMENT).busy) == pytest.approx(1)


def test_a_refresh_reads_only_what_came_since_the_last_one(alice: Person) -> None:
    for ago_s in range(20, 320):
        span(alice, TRAINING, busy_s=0.5, ago_s=ago_s)
    first = utilization_history(alice.tenant)
    DeviceSpan.objects.exclude(pk=DeviceSpan.objects.latest("pk").pk).delete()  # read again, they would be missed
    span(alice, TRAINING, busy_s=0.5, ago_s=20)
    with CaptureQueriesContext(connection) as asked:
        second = utilization_history(alice.tenant)
    assert sum(first.group_sizes.values()) == 300
    assert second.group_sizes == {1: 301}
    assert sum(second.own) == pytest.approx(301 * 0.5 / BUCKET_S)
    assert len(asked) <= 7  # whatever the number of spans


def test_a_span_that_arrives_late_is_seen_at_the_next_refresh(alice: Person) -> None:
    span(alice, TRAINING, busy_s=3, ago_s=30)
    utilization_history(alice.tenant)
    span(alice, TRAINING, busy_s=3, ago_s=WINDOW_S - 60)
    history = utilization_history(alice.tenant)
    assert sum(history.busy[:6]) == pytest.approx(3 / BUCKET_S)
    assert sum(history.busy) == pytest.approx(6 / BUCKET_S)


def test_what_is_kept_of_one_tenant_is_not_shown_to_another(alice: Person, charlie: Person) -> None:
    for person, busy_s in ((alice, 2), (charlie, 5)):
        span(person, TRAINING, busy_s=busy_s)
    for _ in range(2):
        for person, busy_s in ((alice, 2), (charlie, 5)):
            history = utilization_history(person.tenant)
            assert sum(history.own) == pytest.approx(busy_s / BUCKET_S)
            assert sum(history.busy) == pytest.approx(7 / BUCKET_S)


@pytest.mark.parametrize("service", SERVICES)
def test_many_refreshes_show_what_one_reading_of_everything_shows(
    alice: Person, charlie: Person, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(service)
    begin = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with time_machine.travel(begin, tick=False) as clock:
        for _ in range(60):
            for _ in range(dice.randrange(4)):
                person, ago_s = dice.choice([alice, charlie]), dice.uniform(40, 700)
                span(person, service, busy_s=dice.uniform(0, 40), ago_s=ago_s, size=dice.randrange(4))
            utilization_history(alice.tenant, service=service)
            clock.shift(dice.uniform(1, 30))
        kept = utilization_history(alice.tenant, service=service)
        monkeypatch.setattr(spans, "_COUNTED", Kept(most=1))
        assert kept == utilization_history(alice.tenant, service=service)
        assert sum(kept.own) > 0


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 1_700_000_000), st.integers(0, 50_000_000), st.integers(0, 5), st.integers(0, 100)),
        max_size=25,
    ),
    service=st.sampled_from(SERVICES),
)
def test_the_database_adds_up_what_going_through_every_step_adds_up(
    alice: Person, charlie: Person, steps: list[tuple[int, int, int, int]], service: str
) -> None:
    DeviceSpan.objects.all().delete()
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for number, (ago_us, busy_us, size, percent) in enumerate(steps):
        own_us = busy_us * percent // 100
        DeviceSpan.objects.create(
            **{"journal_id": "j", "span_id": str(number), "service": service, "samples": 1, "tokens": 1},
            started_at=now - timedelta(microseconds=ago_us + 1),
            busy_us=busy_us,
            overhead_us=0,
            group_size=size,
            shares={str(alice.tenant.pk): own_us, str(charlie.tenant.pk): busy_us - own_us},
        )
    window = spans.window_of(now)
    plain = spans.Counted()
    for row in DeviceSpan.objects.filter(started_at__gte=spans.begin_of(window.first)):
        spans._spread(plain, service, row.started_at, row.busy_us, row.group_size, row.shares)
    with spans.counted(service, window) as known:
        for bucket in window.buckets:
            assert known.busy_us[bucket] == plain.busy_us[bucket]
            for person in (alice, charlie):
                own = str(person.tenant.pk)
                assert known.of(own, bucket) == plain.of(own, bucket)
        found = {bucket: +sizes for bucket, sizes in known.sizes.items()}
        assert found == {bucket: +sizes for bucket, sizes in plain.sizes.items()}


def test_many_steps_are_added_up_in_few_statements(alice: Person, charlie: Person) -> None:
    begin = timezone.now() - timedelta(seconds=WINDOW_S - BUCKET_S)
    shares = {str(alice.tenant.pk): 300, str(charlie.tenant.pk): 500}
    DeviceSpan.objects.bulk_create(
        DeviceSpan(
            **{"journal_id": "j", "span_id": str(number), "service": TRAINING, "samples": 1, "tokens": 1},
            started_at=begin + timedelta(milliseconds=number * 60),
            busy_us=1000,
            overhead_us=200,
            group_size=2,
            shares=shares,
        )
        for number in range(20_000)
    )
    with CaptureQueriesContext(connection) as asked:
        history = utilization_history(alice.tenant)
    assert sum(history.busy) * BUCKET_S == pytest.approx(20)
    assert sum(history.own) * BUCKET_S == pytest.approx(6)
    assert len(asked) < 12  # one in fifteen begins in the last second of a bucket and is looked at


def test_what_has_left_the_window_is_forgotten(alice: Person) -> None:
    span(alice, TRAINING, busy_s=3, ago_s=60, size=3)
    assert utilization_history(alice.tenant).group_sizes == {3: 1}
    with time_machine.travel(timezone.now() + timedelta(seconds=WINDOW_S)):
        history = utilization_history(alice.tenant)
    assert history.group_sizes == {}
    assert sum(history.busy) == 0


def test_the_api_tells_what_the_runtime_says_of_all_three(alice: Person, runtime: InMemoryRuntime) -> None:
    relay_all(runtime)
    services = {row["service"]: row for row in alice.api.get("/api/v1/runtime").json()["services"]}
    assert set(services) == set(SERVICES)
    assert services["inference"]["latency_p95_ms"] == 40.0
    assert services["training"]["latency_p95_ms"] is None
