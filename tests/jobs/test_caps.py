"""Caps: whatever limit is reached, the jobs it is about stop and keep what they made, and nobody else's do."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Job
from jobs.services.caps import caps_enforce
from jobs.services.dispatch import job_dispatch
from jobs.services.submit import job_submit
from jobs.services.sweep import reconcile
from tenants.billing.budgets.services import budget_create
from tenants.billing.ledger.balances import balance_of
from tenants.billing.ledger.credits import credit_grant, mode_set
from tenants.identity import Actor
from tenants.models import ApiKey, Project, User
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope, tenant_scope
from tests.support.caps import cost, running, set_cap_prices, set_clock, steps, stopped
from tests.support.downloads import content_of
from tests.support.factories import ProjectFactory, UserFactory, make_key
from tests.support.jobs import make_spec, make_version, relay_all, reread, states_of
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.service_steps import publish, tell_usage
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


def test_a_job_stops_at_what_it_may_cost_keeps_its_work_and_does_not_pass_it(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = running(alice, runtime, budget={"max_cost": "5"})
    steps(runtime, key, 3)
    assert stopped(job) == ""
    steps(runtime, key, 1, begin=4)
    assert stopped(job) == "budget_reached", "the step under way takes it to 5"
    wish = runtime.stops[key]
    assert (wish.keep, wish.reason, wish.message) == (True, "budget_reached", "The job may cost 5.")
    steps(runtime, key, 1, begin=5)
    publish(runtime, key, "adapter", b"weights of step 5")
    runtime.end_stopped(*key)
    relay_all(runtime)
    ended = reread(job)
    assert (ended.state, ended.reason, ended.message) == ("cancelled", "budget_reached", "The job may cost 5.")
    assert cost(job) == 5
    (artifact,) = alice.api.get(f"/api/v1/jobs/{job.pk}/artifacts").json()["results"]
    assert content_of(alice.api.get(artifact["download"])) == b"weights of step 5"
    reconcile(runtime=runtime)
    assert states_of(job)[-2:] == ["cancelling", "cancelled"], "it does not start again by itself"


def test_of_a_batch_with_many_steps_one_more_report_is_expected_and_not_all_of_them(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = running(alice, runtime, budget={"max_cost": "20"})
    for step in range(1, 13):
        runtime.train_step([key], step, busy_us=1_000_000)
    relay_all(runtime)
    assert (cost(job), stopped(job)) == (12, "")


def test_a_job_stops_at_its_seconds_of_device_time(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = running(alice, runtime, budget={"max_compute_s": 4})
    steps(runtime, key, 2)
    assert stopped(job) == ""
    steps(runtime, key, 1, begin=3)
    assert stopped(job) == "budget_reached"


def limits(resource: Resource, limit: int, reason: str) -> Any:
    return pytest.param(resource, limit, reason, id=f"{resource}")


LIMITS = [
    limits(Resource.COMPUTE_S_PER_JOB, 4, "compute_limit_reached"),
    limits(Resource.COMPUTE_S_PER_MONTH, 4, "compute_limit_reached"),
    limits(Resource.MONEY_PER_MONTH, 4, "month_limit_reached"),
]


@pytest.mark.parametrize(("resource", "limit", "reason"), LIMITS)
def test_limits_of_a_tenant_stop_its_jobs_and_nobody_elses(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, olga: User, resource: Resource, limit: int, reason: str
) -> None:
    (job, key), (other, other_key) = running(alice, runtime), running(alice, runtime)
    foreign, foreign_key = running(charlie, runtime)
    quota_set(by=olga, tenant=alice.tenant, resource=resource, limit=limit)
    steps(runtime, key, 2)
    steps(runtime, foreign_key, 5)
    assert (stopped(job), stopped(other), stopped(foreign)) == ("", "", "")
    steps(runtime, key, 1, begin=3)
    of_one_job = resource == Resource.COMPUTE_S_PER_JOB
    assert (stopped(job), stopped(other), stopped(foreign)) == (reason, "" if of_one_job else reason, "")
    assert runtime.stops.keys() == ({key} if of_one_job else {key, other_key})


@pytest.mark.parametrize(("resource", "limit", "reason"), LIMITS)
def test_limits_of_a_project_stop_its_jobs_only(
    alice: Person, runtime: InMemoryRuntime, olga: User, resource: Resource, limit: int, reason: str
) -> None:
    project = push_project(alice)
    (job, key), (elsewhere, other_key) = running(alice, runtime, project="push"), running(alice, runtime)
    quota_set(by=olga, tenant=alice.tenant, resource=resource, limit=limit, project=project)
    steps(runtime, other_key, 6)
    assert (stopped(job), stopped(elsewhere)) == ("", "")
    steps(runtime, key, 3)
    assert (stopped(job), stopped(elsewhere)) == (reason, "")


def push_project(person: Person) -> Project:
    with tenant_scope(person.tenant):
        return ProjectFactory(tenant=person.tenant, slug="push")


def set_budget(person: Person, amount: str, *, hard: bool, project: Project | None = None) -> None:
    with tenant_scope(person.tenant):
        budget_create(by=person.actor, project=project, amount=Decimal(amount), hard=hard)


def test_a_hard_budget_of_the_tenant_stops_all_its_jobs_a_soft_one_none(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    (job, key), (other, _) = running(alice, runtime), running(alice, runtime)
    project = push_project(alice)
    set_budget(alice, "1", hard=False, project=project)
    set_budget(alice, "3", hard=True)
    steps(runtime, key, 2)
    assert (stopped(job), stopped(other)) == ("budget_reached", "budget_reached")
    assert reread(job).message == "The month's budget of the tenant is 3."


def test_a_soft_budget_stops_nothing(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = running(alice, runtime)
    set_budget(alice, "2", hard=False)
    steps(runtime, key, 4)
    assert stopped(job) == ""


def test_a_hard_budget_of_a_project_stops_its_jobs_only(alice: Person, runtime: InMemoryRuntime) -> None:
    project = push_project(alice)
    (job, key), (elsewhere, other_key) = running(alice, runtime, project="push"), running(alice, runtime)
    set_budget(alice, "3", hard=True, project=project)
    steps(runtime, other_key, 5)
    steps(runtime, key, 2)
    assert (stopped(job), stopped(elsewhere)) == ("budget_reached", "")


def test_what_jobs_of_a_key_may_cost_in_all_stops_those_of_that_key(alice: Person, runtime: InMemoryRuntime) -> None:
    key_row, _ = make_key(alice.tenant, alice.role, alice.user)
    actor = Actor(tenant=alice.tenant, role=alice.role, user=alice.user, key=key_row)
    jobs = [job_submit(tenant=alice.tenant, actor=actor, spec=make_spec(make_version(alice))) for _ in range(2)]
    for job in jobs:
        job_dispatch(job.pk, runtime=runtime)
        runtime.tell_state(str(job.pk), 1, WorkloadState.RUNNING)
    by_hand, other_key = running(alice, runtime)
    with platform_scope():
        ApiKey.objects.filter(pk=key_row.pk).update(spend_cap=Decimal(4))
    steps(runtime, other_key, 6)
    steps(runtime, (str(jobs[0].pk), 1), 2)
    assert [stopped(job) for job in jobs] == ["", ""]
    steps(runtime, (str(jobs[1].pk), 1), 1)
    assert [stopped(job) for job in [*jobs, by_hand]] == ["key_cap_reached", "key_cap_reached", ""]


def test_without_credit_jobs_go_on_as_far_as_their_own_hold_reaches(
    alice: Person, runtime: InMemoryRuntime, olga: User
) -> None:
    mode_set(by=olga, tenant=alice.tenant, mode="prepaid")
    credit_grant(by=olga, tenant=alice.tenant, amount=Decimal(10), reason="a try", reference="g-1")
    (job, key), (other, other_key) = (running(alice, runtime, budget={"max_cost": amount}) for amount in ("3", "6"))
    with platform_scope():  # it goes beyond what was set aside for it, as one without a budget may
        Job.objects.filter(pk=job.pk).update(spec=job.spec | {"budget": {}})
    steps(runtime, key, 2)
    assert (stopped(job), stopped(other)) == ("", ""), "1 of its hold and 1 of the credit are left"
    steps(runtime, key, 1, begin=3)
    assert (stopped(job), stopped(other)) == ("credit_exhausted", "")
    steps(runtime, other_key, 4)
    assert stopped(other) == ""


def play_until_all_stop(runtime: InMemoryRuntime, keys: list[tuple[str, int]]) -> None:
    """Steps in turn, each told by itself. A job that is told to stop has a step under way, which it tells of."""
    playing, step = list(keys), 0
    while playing:
        step += 1
        assert step < 50, "nothing stops them"
        for key in list(playing):
            last = key in runtime.stops
            steps(runtime, key, 1, begin=step)
            if last:
                runtime.end_stopped(*key)
                playing.remove(key)
    relay_all(runtime)


def test_jobs_that_share_a_budget_pass_it_by_one_step_each_at_most(alice: Person, runtime: InMemoryRuntime) -> None:
    started = [running(alice, runtime) for _ in range(3)]
    set_budget(alice, "10", hard=True)
    play_until_all_stop(runtime, [key for _, key in started])
    assert [reread(job).reason for job, _ in started] == ["budget_reached"] * 3
    assert Decimal(10) <= sum(cost(job) for job, _ in started) <= Decimal(10 + 3)


def test_jobs_that_share_the_last_credit_pass_it_by_one_step_each_at_most(
    alice: Person, runtime: InMemoryRuntime, olga: User
) -> None:
    mode_set(by=olga, tenant=alice.tenant, mode="prepaid")
    credit_grant(by=olga, tenant=alice.tenant, amount=Decimal(10), reason="a try", reference="g-1")
    started = [running(alice, runtime, budget={"max_cost": "2"}) for _ in range(3)]
    with platform_scope():  # no budgets of their own: their holds are 2 each, the other 4 are anybody's
        for job, _ in started:
            Job.objects.filter(pk=job.pk).update(spec=job.spec | {"budget": {}})
    play_until_all_stop(runtime, [key for _, key in started])
    assert [reread(job).reason for job, _ in started] == ["credit_exhausted"] * 3
    spent = sum(cost(job) for job, _ in started)
    assert Decimal(10) <= spent <= Decimal(10 + 3)
    left = balance_of(alice.tenant)
    assert (left.credit, left.held, left.unbilled) == (0, 0, spent - 10)


def test_what_the_platform_redoes_uses_nobodys_limit_up(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = running(alice, runtime, budget={"max_compute_s": 3, "max_cost": "3"})
    lines = {"train.samples": 160, "train.compute_us": 10_000_000}
    tell_usage(runtime, key, "span-x", lines, billable=False, reason="redone_after_restart")
    relay_all(runtime)
    assert stopped(job) == ""


def test_far_from_every_limit_the_number_of_queries_is_small_and_does_not_depend_on_jobs_or_tenants(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, olga: User
) -> None:
    for person in (alice, charlie):
        quota_set(by=olga, tenant=person.tenant, resource=Resource.MONEY_PER_MONTH, limit=1_000_000)
        set_budget(person, "1000000", hard=True)
    first, _ = running(alice, runtime)
    few = queries([(first.tenant_id, first.pk)])
    jobs = [running(person, runtime)[0] for person in (alice, charlie, alice, charlie, charlie)]
    many = queries([(job.tenant_id, job.pk) for job in [first, *jobs]])
    assert few == many <= 9
    assert queries([]) == 0


def queries(charged: list[Any]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert caps_enforce(charged) == []
    return len(captured)
