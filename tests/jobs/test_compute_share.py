"""A tenant's part of the device time of a job's life: exact, whatever is kept between two reads."""

import random
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import DeviceSpan, Job
from jobs.selectors.shares import compute_share
from tests.support.jobs import start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(alice: Person, runtime: InMemoryRuntime) -> Job:
    """A job of Alice's that has been running for an hour."""
    job, _ = start_job(alice, runtime)
    job.started_at = timezone.now() - timedelta(hours=1)
    return job


def measure(
    own: Person, own_us: int, other: Person, other_us: int, *, ago_s: float, service: str = "training"
) -> None:
    DeviceSpan.objects.create(
        journal_id="j",
        span_id=f"{DeviceSpan.objects.count()}-{own_us}",
        service=service,
        started_at=timezone.now() - timedelta(seconds=ago_s),
        busy_us=own_us + other_us,
        overhead_us=0,
        group_size=2,
        samples=1,
        tokens=1,
        shares={str(own.tenant.pk): own_us, str(other.tenant.pk): other_us},
    )


def test_a_second_read_adds_only_what_came_since(alice: Person, charlie: Person, job: Job) -> None:
    measure(alice, 300, charlie, 700, ago_s=60)
    measure(alice, 100, charlie, 0, ago_s=50)
    assert compute_share(alice.tenant, job) == 400 / 1100
    DeviceSpan.objects.filter(busy_us=1000).delete()  # read again, it would be missed
    measure(alice, 1, charlie, 10**9, ago_s=40)
    with CaptureQueriesContext(connection) as asked:
        assert compute_share(alice.tenant, job) == 401 / (1101 + 10**9)
    assert len(asked) == 2
    with CaptureQueriesContext(connection) as asked:
        assert compute_share(alice.tenant, job) == 401 / (1101 + 10**9)
    assert len(asked) == 1  # nothing new: nothing is summed


def test_many_reads_give_what_one_sum_gives_to_the_microsecond(alice: Person, charlie: Person, job: Job) -> None:
    dice, own_us, busy_us = random.Random(4), 0, 0
    for _ in range(50):
        own, other, ago_s = dice.randrange(10**7), dice.randrange(10**7), dice.uniform(1, 7200)
        service = dice.choice(["training", "inference", "environment"])
        measure(alice, own, charlie, other, ago_s=ago_s, service=service)
        if ago_s < 3600 and service != "environment":
            own_us, busy_us = own_us + own, busy_us + own + other
        assert compute_share(alice.tenant, job) == (own_us / busy_us if busy_us else None)


def test_the_end_of_a_job_cuts_off_what_was_measured_after_it(alice: Person, charlie: Person, job: Job) -> None:
    measure(alice, 300, charlie, 700, ago_s=60)
    measure(alice, 0, charlie, 1000, ago_s=10)
    assert compute_share(alice.tenant, job) == 300 / 2000
    job.finished_at = timezone.now() - timedelta(seconds=30)
    assert compute_share(alice.tenant, job) == 300 / 1000
    measure(alice, 100, charlie, 0, ago_s=45)  # told late
    measure(alice, 100, charlie, 0, ago_s=5)
    assert compute_share(alice.tenant, job) == 400 / 1100


def test_what_is_kept_for_one_tenant_is_not_told_to_another(alice: Person, charlie: Person, job: Job) -> None:
    measure(alice, 300, charlie, 700, ago_s=60)
    for _ in range(2):
        assert compute_share(alice.tenant, job) == 0.3
        assert compute_share(charlie.tenant, job) == 0.7
