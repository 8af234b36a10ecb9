"""Limits on what runs at once: jobs queue with a reason, start in line, and never exceed the limit, whoever races."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Job, OutboxMessage
from jobs.services import dispatch, sweep
from jobs.services.cancel import job_cancel
from jobs.services.dispatch import Dispatch, job_dispatch, tenant_dispatch
from jobs.services.sweep import reconcile
from jobs.tasks import dispatch_tenant
from tenants.models import Tenant
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set, quota_withdraw
from tenants.scope import platform_scope
from tenants.services import tenant_pause, tenant_resume
from tests.support.factories import ProjectFactory, UserFactory
from tests.support.jobs import events_of, make_job, make_spec, make_version, relay_all, reread
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_job
from tests.support.story import Person
from tests.support.threads import all_at_once

RUNNING = Resource.RUNNING_JOBS


@pytest.fixture
def _old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps look at fresh rows too."""
    monkeypatch.setattr(sweep, "QUEUED_AGE", timedelta(0))


def allow(person: Person, limit: int, resource: Resource = RUNNING, **more: Any) -> None:
    quota_set(by=person.actor, tenant=person.tenant, resource=resource, limit=limit, **more)


def states(*jobs: Job) -> list[tuple[str, str]]:
    return [(row.state, row.reason) for row in map(reread, jobs)]


def end(job: Job, runtime: InMemoryRuntime) -> None:
    runtime.tell_state(str(job.pk), reread(job).attempt, WorkloadState.SUCCEEDED)
    relay_all(runtime)


QUEUED, STARTING = ("queued", "quota_running_jobs"), ("starting", "")


@pytest.mark.django_db
def test_a_job_beyond_the_limit_stays_queued_and_says_why(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    first, second = make_job(alice), make_job(alice)
    assert job_dispatch(first.pk, runtime=runtime) == Dispatch.ACCEPTED
    assert job_dispatch(second.pk, runtime=runtime) == Dispatch.WAITING
    assert job_dispatch(second.pk, runtime=runtime) == Dispatch.WAITING
    assert states(first, second) == [STARTING, QUEUED]
    assert "limit of running jobs is 1" in reread(second).message
    assert len(events_of(second)) == 2, "the reason is told once"
    assert reread(second).attempt == 0


@pytest.mark.django_db
def test_a_job_that_is_not_first_in_line_leaves_the_place_to_the_one_that_is(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    older, urgent = make_job(alice), make_job(alice, priority=9)
    assert job_dispatch(older.pk, runtime=runtime) == Dispatch.WAITING
    assert job_dispatch(urgent.pk, runtime=runtime) == Dispatch.ACCEPTED


@pytest.mark.django_db
def test_an_ended_job_gives_its_place_to_the_next_in_line_at_once(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    first, second, urgent = make_job(alice), make_job(alice), make_job(alice, priority=8)
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert states(first, second, urgent) == [QUEUED, QUEUED, STARTING]
    with platform_scope():
        OutboxMessage.objects.all().delete()
    end(urgent, runtime)
    message = OutboxMessage.objects.get()
    assert (message.topic, message.key) == ("dispatch_tenant", str(alice.tenant.pk))
    dispatch_tenant(message.key)
    assert states(first, second) == [STARTING, QUEUED]
    end(first, runtime)
    dispatch_tenant(message.key)
    assert states(second) == [STARTING]


@pytest.mark.django_db
def test_a_cancelled_job_in_line_frees_what_it_kept(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 4, Resource.ENV_SEATS)
    adapter = make_adapter(alice)
    busy = make_policy_job(alice, "evaluation", adapter, parallel=2)
    runtime.artifacts[adapter.runtime_key] = b"PK"
    job_dispatch(busy.pk, runtime=runtime)
    large = make_policy_job(alice, "evaluation", adapter, parallel=4)
    small = make_policy_job(alice, "evaluation", adapter, parallel=1)
    assert job_dispatch(small.pk, runtime=runtime) == Dispatch.WAITING
    job_cancel(tenant=alice.tenant, job_id=large.pk)
    assert OutboxMessage.objects.filter(topic="dispatch_tenant").exists()
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert states(small) == [STARTING]


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_the_sweep_starts_whoever_is_next_when_the_message_was_lost(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    first, second = make_job(alice), make_job(alice)
    reconcile(runtime=runtime)
    assert states(first, second) == [STARTING, QUEUED]
    end(first, runtime)
    assert reconcile(runtime=runtime).dispatched == 1
    assert states(second) == [STARTING]


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_a_tenant_with_a_long_line_does_not_keep_others_from_the_sweep(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sweep, "_LIMIT", 2)
    allow(alice, 0)
    for _ in range(4):
        make_job(alice)
    theirs = make_job(charlie)
    reconcile(runtime=runtime)
    assert states(theirs) == [STARTING]


@pytest.mark.django_db
def test_a_raised_limit_starts_waiting_jobs_and_a_lowered_one_stops_none(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    jobs = [make_job(alice) for _ in range(3)]
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    with platform_scope():
        OutboxMessage.objects.all().delete()
    allow(alice, 2)
    assert OutboxMessage.objects.filter(topic="dispatch_tenant", key=str(alice.tenant.pk)).exists()
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert states(*jobs) == [STARTING, STARTING, QUEUED]
    allow(alice, 0)
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert states(*jobs) == [STARTING, STARTING, QUEUED]
    assert runtime.cancelled == []
    end(jobs[0], runtime)
    end(jobs[1], runtime)
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert states(jobs[2]) == [QUEUED]
    quota_withdraw(by=alice.actor, tenant=alice.tenant, resource=RUNNING)
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert states(jobs[2]) == [STARTING]


@pytest.mark.django_db
def test_a_raise_that_runs_out_leaves_the_limit_before_it(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    allow(alice, 3, expires_at=timezone.now() + timedelta(hours=1))
    with time_machine.travel(timezone.now() + timedelta(hours=2)):
        first, second = make_job(alice), make_job(alice)
        tenant_dispatch(alice.tenant.pk, runtime=runtime)
        assert states(first, second) == [STARTING, QUEUED]


@pytest.mark.django_db
def test_a_project_at_its_limit_does_not_hold_up_the_others(alice: Person, runtime: InMemoryRuntime):
    slow = ProjectFactory(tenant=alice.tenant, slug="slow")
    allow(alice, 1, project=slow)
    allow(alice, 2)
    held = [make_job(alice, project="slow") for _ in range(3)]
    other = make_job(alice)
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert states(*held, other) == [STARTING, QUEUED, QUEUED, STARTING]
    assert reread(held[1]).message.startswith("The project")


@pytest.mark.django_db
def test_one_tenants_limit_is_nothing_to_another(alice: Person, charlie: Person, runtime: InMemoryRuntime):
    allow(alice, 0)
    mine, theirs = make_job(alice), make_job(charlie)
    assert job_dispatch(mine.pk, runtime=runtime) == Dispatch.WAITING
    assert job_dispatch(theirs.pk, runtime=runtime) == Dispatch.ACCEPTED


@pytest.mark.django_db
def test_queued_jobs_of_a_paused_tenant_wait_with_the_reason_and_start_when_it_is_resumed(
    alice: Person, runtime: InMemoryRuntime
):
    operator, job = UserFactory(is_staff=True), make_job(alice)
    tenant_pause(by=operator, tenant=alice.tenant, reason="an unpaid bill")
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.WAITING
    assert states(job) == [("queued", "tenant_paused")]
    assert "an unpaid bill" in reread(job).message
    OutboxMessage.objects.all().delete()
    tenant_resume(by=operator, tenant=alice.tenant)
    dispatch_tenant(OutboxMessage.objects.get(topic="dispatch_tenant").key)
    assert states(job) == [STARTING]


@pytest.mark.django_db
def test_a_job_the_runtime_gave_back_returns_its_place(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    first, second = make_job(alice), make_job(alice)
    job_dispatch(first.pk, runtime=runtime)
    with platform_scope():
        assert sweep._requeue(reread(first))
    assert job_dispatch(second.pk, runtime=runtime) == Dispatch.WAITING, "the older one is first in line again"
    assert job_dispatch(first.pk, runtime=runtime) == Dispatch.ACCEPTED


@pytest.mark.django_db(transaction=True)
def test_eight_workers_with_one_place_start_exactly_the_first_in_line(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 1)
    jobs = [make_job(alice) for _ in range(8)]
    outcomes = all_at_once(lambda number: job_dispatch(jobs[number].pk, runtime=runtime))
    assert Counter(map(str, outcomes)) == {"accepted": 1, "waiting": 7}
    assert list(runtime.submitted) == [(str(jobs[0].pk), 1)]
    assert states(*jobs) == [STARTING] + [QUEUED] * 7


@pytest.mark.django_db(transaction=True)
def test_eight_workers_for_a_whole_tenant_start_as_many_as_there_are_places(alice: Person, runtime: InMemoryRuntime):
    allow(alice, 3)
    jobs = [make_job(alice) for _ in range(6)]
    outcomes = all_at_once(lambda _: tenant_dispatch(alice.tenant.pk, runtime=runtime))
    assert sum(outcomes) == 3
    assert states(*jobs) == [STARTING] * 3 + [QUEUED] * 3


@pytest.mark.django_db(transaction=True)
def test_a_place_that_is_looked_for_before_the_lock_is_taken_twice(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    """Planted: the count is read, then the row is locked. The test above would see two started jobs."""
    allow(alice, 1)
    jobs = [make_job(alice) for _ in range(2)]
    stale = {job.pk: dispatch.wait_of(Tenant.objects.get(pk=alice.tenant.pk), job.pk) for job in jobs[:1]}
    job_dispatch(jobs[0].pk, runtime=runtime)
    monkeypatch.setattr(dispatch, "wait_of", lambda tenant, job_id: stale[jobs[0].pk])
    assert job_dispatch(jobs[1].pk, runtime=runtime) == Dispatch.ACCEPTED
    assert states(*jobs) == [STARTING, STARTING]


@pytest.mark.django_db
def test_a_specification_names_its_project_and_priority(alice: Person):
    ProjectFactory(tenant=alice.tenant, slug="second")
    job = make_job(alice, project="second", priority=7)
    assert (job.project.slug, job.priority, job.env_seats) == ("second", 7, 0)
    answer = alice.api.post("/api/v1/jobs", make_spec(make_version(alice), project="nowhere"))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/project"


@pytest.mark.django_db
def test_each_kind_asks_for_the_seats_it_plays_in(alice: Person):
    adapter = make_adapter(alice)
    asked = {
        "rl": make_policy_job(alice, "rl", adapter, collection={"seats": 6}).env_seats,
        "evaluation": make_policy_job(alice, "evaluation", adapter, parallel=3).env_seats,
        "rollout": make_policy_job(alice, "rollout", adapter, parallel=5).env_seats,
    }
    assert asked == {"rl": 6, "evaluation": 3, "rollout": 5}
