"""Lines with somebody in front who cannot start: those behind start all the same, and everybody is told why not."""

from typing import Any

import pytest

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Job
from jobs.services import dispatch
from jobs.services.dispatch import Dispatch, job_dispatch, tenant_dispatch
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tests.support.caps import running, set_cap_prices, set_clock, steps, stopped
from tests.support.factories import ProjectFactory
from tests.support.jobs import events_of, make_job, relay_all, reread
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db
RUNNING, MONEY = Resource.RUNNING_JOBS, Resource.MONEY_PER_MONTH


def allow(person: Person, resource: Resource, limit: int, **more: Any) -> None:
    quota_set(by=person.actor, tenant=person.tenant, resource=resource, limit=limit, **more)


def told(*jobs: Job) -> list[tuple[str, str]]:
    return [(row.state, row.reason) for row in map(reread, jobs)]


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a line tells three of those that wait."""
    monkeypatch.setattr(dispatch, "_TOLD_AT_ONCE", 3)


@pytest.mark.usefixtures("few_at_once")
def test_everybody_in_a_long_line_is_told_in_the_end_and_once(alice: Person, runtime: InMemoryRuntime):
    allow(alice, RUNNING, 0)
    jobs = [make_job(alice) for _ in range(7)]
    for known in (3, 6, 7, 7):
        assert tenant_dispatch(alice.tenant.pk, runtime=runtime) == 0
        assert [reason for _, reason in told(*jobs)] == ["quota_running_jobs"] * known + [""] * (7 - known)
    assert all(len(events_of(job, type="state")) == 2 for job in jobs)


@pytest.mark.usefixtures("few_at_once")
def test_a_place_is_found_behind_any_number_of_jobs_of_a_project_at_its_limit(alice: Person, runtime: InMemoryRuntime):
    slow = ProjectFactory(tenant=alice.tenant, slug="slow")
    allow(alice, RUNNING, 0, project=slow)
    for _ in range(5):
        make_job(alice, project="slow")
    behind = make_job(alice)
    assert tenant_dispatch(alice.tenant.pk, runtime=runtime) == 1
    assert told(behind) == [("starting", "")]


def test_a_changed_limit_is_told_anew_to_those_it_still_holds_up(alice: Person, runtime: InMemoryRuntime):
    jobs = [make_job(alice) for _ in range(3)]
    for limit in (1, 2, 2):
        allow(alice, RUNNING, limit)
        tenant_dispatch(alice.tenant.pk, runtime=runtime)
        assert f"limit of running jobs is {limit}" in reread(jobs[2]).message
    assert len(events_of(jobs[2], type="state")) == 3


def test_a_project_whose_month_is_paid_out_holds_up_itself_only_until_its_limit_is_raised(
    alice: Person, runtime: InMemoryRuntime
):
    set_cap_prices()
    set_clock(runtime)
    rich = ProjectFactory(tenant=alice.tenant, slug="rich")
    job, key = running(alice, runtime, project="rich")
    first = make_job(alice, project="rich")
    allow(alice, MONEY, 3, project=rich)
    steps(runtime, key, 3)
    assert stopped(job) == "month_limit_reached"
    runtime.end_stopped(*key)
    relay_all(runtime)
    allow(alice, RUNNING, 1)
    others = [make_job(alice) for _ in range(2)]
    assert job_dispatch(first.pk, runtime=runtime) == Dispatch.WAITING
    for other in others:
        assert tenant_dispatch(alice.tenant.pk, runtime=runtime) == 1
        assert told(first, other) == [("queued", "month_limit_reached"), ("starting", "")]
        runtime.tell_state(str(other.pk), 1, WorkloadState.SUCCEEDED)
        relay_all(runtime)
    allow(alice, MONEY, 100, project=rich)
    assert tenant_dispatch(alice.tenant.pk, runtime=runtime) == 1
    assert told(first) == [("starting", "")]
