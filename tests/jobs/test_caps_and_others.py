"""Caps that meet something else: a user's cancel, a process that died, a runtime that is away."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Job
from jobs.relay import Relay
from jobs.runtime_client import RuntimeUnreachable
from jobs.services.cancel import job_cancel
from jobs.services.caps import caps_sweep
from jobs.services.dispatch import Dispatch, job_dispatch
from jobs.services.sweep import reconcile
from tenants.audit.models import AuditEvent
from tenants.models import User
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.support.caps import SECOND_US, running, set_cap_prices, set_clock, steps, stopped
from tests.support.factories import UserFactory
from tests.support.jobs import events_of, make_job, relay_all, reread
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def prices(runtime: InMemoryRuntime) -> None:
    """One step costs 1 and takes a second of the device; it happens this month."""
    set_cap_prices()
    set_clock(runtime)


@pytest.fixture
def olga() -> User:
    """An operator."""
    return UserFactory(email="olga@platform.example", is_staff=True)


def test_a_stop_is_on_record_as_the_platforms_own_act_and_told_in_the_stream(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = running(alice, runtime, budget={"max_cost": "1"})
    steps(runtime, key, 1)
    with platform_scope():
        (act,) = AuditEvent.objects.filter(verb="job.stopped")
    assert (act.actor_kind, act.object_id, act.after["reason"]) == ("system", str(job.pk), "budget_reached")
    assert act.tenant_id == alice.tenant.pk
    assert events_of(job, type="state")[-1].data["reason"] == "budget_reached"


def test_a_users_cancel_that_came_first_stands_and_keeps_nothing(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = running(alice, runtime, budget={"max_cost": "1"})
    cancel(alice, job)
    steps(runtime, key, 2)
    assert (stopped(job), runtime.stops) == ("cancelled_by_user", {})
    reconcile(runtime=runtime)
    assert not runtime.stops[key].keep


def cancel(person: Person, job: Job) -> None:
    job_cancel(tenant=person.tenant, job_id=job.pk, by=person.actor)


def test_a_users_cancel_after_a_cap_changes_nothing(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = running(alice, runtime, budget={"max_cost": "1"})
    steps(runtime, key, 1)
    cancel(alice, job)
    reconcile(runtime=runtime)
    assert (stopped(job), runtime.stops[key].keep) == ("budget_reached", True)


def test_the_sweep_finds_a_cap_that_was_missed_and_a_limit_that_was_lowered(
    alice: Person, runtime: InMemoryRuntime, olga: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job, key), (other, other_key) = running(alice, runtime, budget={"max_cost": "2"}), running(alice, runtime)
    with monkeypatch.context() as patch:
        patch.setattr(Relay, "_stop_spent", lambda *args: None)  # killed between the commit and the stop
        steps(runtime, key, 3)
        steps(runtime, other_key, 3)
    assert (stopped(job), stopped(other)) == ("", "")
    assert reconcile(runtime=runtime).capped == 1
    assert (stopped(job), runtime.stops[key].keep) == ("budget_reached", True), "and the runtime is told"
    quota_set(by=olga, tenant=alice.tenant, resource=Resource.MONEY_PER_MONTH, limit=6)
    assert reconcile(runtime=runtime).capped == 1
    assert stopped(other) == "month_limit_reached"
    assert reconcile(runtime=runtime).capped == 0


def test_a_runtime_that_is_away_is_told_when_it_is_back(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = running(alice, runtime, budget={"max_cost": "1"})
    runtime.train_step([key], 1, busy_us=SECOND_US)
    original, runtime.cancel = runtime.cancel, unreachable  # type: ignore[method-assign]
    relay_all(runtime)
    assert (stopped(job), runtime.stops) == ("budget_reached", {})
    runtime.cancel = original  # type: ignore[method-assign]
    reconcile(runtime=runtime)
    assert runtime.stops[key].keep


def unreachable(*args: Any) -> None:
    raise RuntimeUnreachable("connection refused", maybe_delivered=False)


def test_a_queued_job_does_not_start_at_a_limit_and_starts_when_it_is_raised(
    alice: Person, runtime: InMemoryRuntime, olga: User
) -> None:
    job, key = running(alice, runtime)
    waiting = make_job(alice)
    quota_set(by=olga, tenant=alice.tenant, resource=Resource.MONEY_PER_MONTH, limit=2)
    steps(runtime, key, 2)
    assert stopped(job) == "month_limit_reached"
    assert job_dispatch(waiting.pk, runtime=runtime) == Dispatch.WAITING
    row = reread(waiting)
    assert (row.state, row.reason, row.attempt) == ("queued", "month_limit_reached", 0)
    quota_set(by=olga, tenant=alice.tenant, resource=Resource.MONEY_PER_MONTH, limit=1000)
    assert job_dispatch(waiting.pk, runtime=runtime) == Dispatch.ACCEPTED


def test_without_live_jobs_nothing_is_looked_at(alice: Person, runtime: InMemoryRuntime) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert caps_sweep() == []
    assert len(captured) == 1
