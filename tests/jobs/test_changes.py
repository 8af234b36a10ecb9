"""Signatures of what a tenant's pages show: another one after every change of the tenant's own, and after no other."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gpu_runtime.protocol.messages import LogWritten, MetricsRecorded
from jobs.models import RuntimeSnapshot
from jobs.selectors.changes import Topic, changed, cursor_of, signatures, signatures_of
from jobs.services.cancel import job_cancel
from jobs.services.describe import job_describe
from tenants.datasets.models import DatasetVersion
from tenants.scope import platform_scope
from tests.support.jobs import make_job, make_version, relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def now_of(person: Person) -> dict[Topic, str]:
    return signatures(person.tenant, person.actor.permissions)


@pytest.fixture
def told(alice: Person, charlie: Person):
    """Which topics changed for Alice since the last question; none of Charlie's may, but for the runtime's."""
    known = {"alice": now_of(alice), "charlie": now_of(charlie)}

    def ask() -> set[str]:
        before, known["alice"] = known["alice"], now_of(alice)
        assert set(changed(known["charlie"], now_of(charlie))) <= {Topic.RUNTIME}
        return {str(topic) for topic in changed(before, known["alice"])}

    return ask


def test_asking_twice_changes_nothing(alice: Person, told: Any):
    make_job(alice)
    told()
    assert told() == set()


def test_every_step_of_a_jobs_life_is_a_change_of_jobs(alice: Person, runtime: InMemoryRuntime, told: Any):
    job, key = start_job(alice, runtime)
    assert "jobs" in told()
    for message in (MetricsRecorded(step=1, values={"loss": 0.5}), LogWritten(level="info", message="here")):
        runtime.tell(*key, message)
        relay_all(runtime)
        assert "jobs" in told()
    job_cancel(tenant=alice.tenant, job_id=job.pk, by=alice.actor)
    assert "jobs" in told()


def test_a_job_that_ends_as_another_begins_is_a_change(alice: Person, told: Any):
    """The sums over live jobs are the same before and after; the newest number is not."""
    first = make_job(alice)
    told()
    job_cancel(tenant=alice.tenant, job_id=first.pk, by=alice.actor)
    make_job(alice)
    assert "jobs" in told()


def test_what_people_write_about_an_ended_job_is_a_change(alice: Person, told: Any):
    job = make_job(alice)
    job_cancel(tenant=alice.tenant, job_id=job.pk, by=alice.actor)
    told()
    job_describe(by=alice.actor, tenant=alice.tenant, job_id=job.pk, expected=reread(job).described, note="odd")
    assert told() == {"jobs"}


def test_a_dataset_version_and_its_state_are_changes_of_datasets_only(alice: Person, told: Any):
    version = make_version(alice, state="validating")
    assert told() == {"datasets"}
    with platform_scope():
        DatasetVersion.objects.filter(pk=version.pk).update(state="invalid")
    assert told() == {"datasets"}


def test_metered_work_is_a_change_of_usage(alice: Person, runtime: InMemoryRuntime, told: Any):
    _, key = start_job(alice, runtime)
    told()
    runtime.train_step([key], 1, busy_us=2000)
    relay_all(runtime)
    assert {"jobs", "usage"} <= told()


def test_a_runtime_that_is_silent_for_a_while_is_a_change(alice: Person):
    RuntimeSnapshot.objects.create(journal_id="own", status={}, seen_at=timezone.now())
    before = now_of(alice)
    RuntimeSnapshot.objects.update(seen_at=timezone.now() - timedelta(minutes=1))
    after = now_of(alice)
    assert changed(before, after) == [Topic.RUNTIME]
    assert changed(after, now_of(alice)) == []


def test_nobody_hears_of_what_they_may_not_read(alice: Person):
    assert set(signatures(alice.tenant, [])) == set()


def test_a_cursor_gives_back_its_signatures(alice: Person):
    now = now_of(alice)
    assert signatures_of(cursor_of(now)) == now
    assert signatures_of("") == {}


@pytest.mark.parametrize(
    "cursor",
    ["x", "jobs", "jobs-1", "moods-0123456789abcdef", "jobs-0123456789abcdef~jobs-0123456789abcdef", "~", "0"],
)
def test_what_no_cursor_is_is_told_apart(cursor: str):
    assert signatures_of(cursor) is None


def test_signatures_are_the_same_number_of_questions_however_much_there_is(
    alice: Person, django_assert_num_queries: Any
):
    with django_assert_num_queries(11):
        now_of(alice)
    for _ in range(5):
        make_job(alice)
    with django_assert_num_queries(11):
        now_of(alice)


def test_two_tenants_with_the_same_rows_have_different_signatures(alice: Person, charlie: Person):
    """So a cursor of one lab says nothing to a page of another."""
    shared = {Topic.DATASETS, Topic.JOBS, Topic.USAGE}
    assert {topic for topic in shared if now_of(alice)[topic] != now_of(charlie)[topic]} == shared
