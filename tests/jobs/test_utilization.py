"""How busy each service was: a step's time lies where it was spent, process time of environments side by side once."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import DeviceSpan
from jobs.selectors.utilization import BUCKET_S, ENVIRONMENT, INFERENCE, SERVICES, TRAINING, utilization_history
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


def test_the_api_tells_what_the_runtime_says_of_all_three(alice: Person, runtime: InMemoryRuntime) -> None:
    relay_all(runtime)
    services = {row["service"]: row for row in alice.api.get("/api/v1/runtime").json()["services"]}
    assert set(services) == set(SERVICES)
    assert services["inference"]["latency_p95_ms"] == 40.0
    assert services["training"]["latency_p95_ms"] is None
