"""What refuses a job at the door: every refusal names the limit, what is used, what is allowed and what to do."""

from collections import Counter
from typing import Any

import pytest

from jobs.models import Job
from jobs.services.dispatch import tenant_dispatch
from jobs.services.submit import job_submit
from tenants.errors import ApplicationError
from tenants.quotas.models import Resource
from tenants.quotas.services import default_quota_set, quota_set
from tenants.scope import platform_scope
from tenants.services import tenant_pause, tenant_resume
from tests.support.factories import ProjectFactory, UserFactory
from tests.support.jobs import make_job, make_spec, make_version
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_spec
from tests.support.story import Person
from tests.support.threads import all_at_once

QUEUED = Resource.QUEUED_JOBS


def submit(person: Person, **fields: Any) -> Any:
    return person.api.post("/api/v1/jobs", make_spec(make_version(person), **fields))


@pytest.mark.django_db
def test_a_full_line_refuses_with_the_limit_what_is_used_and_what_to_do(alice: Person, runtime: InMemoryRuntime):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=1)
    assert submit(alice).status_code == 202
    answer = submit(alice)
    problem = answer.json()
    assert answer.status_code == 409
    assert (problem["resource"], problem["limit"], problem["used"]) == ("queued_jobs", 1, 1)
    assert "quota-exceeded" in problem["type"] or "quota_exceeded" in problem["type"]
    assert "cancel" in problem["detail"]
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    assert submit(alice).status_code == 202, "a started job is in line no more"


@pytest.mark.django_db
def test_a_projects_line_is_its_own(alice: Person):
    small = ProjectFactory(tenant=alice.tenant, slug="small")
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=1, project=small)
    assert submit(alice, project="small").status_code == 202
    refused = submit(alice, project="small")
    assert (refused.status_code, "'small'" in refused.json()["detail"]) == (409, True)
    assert submit(alice).status_code == 202


@pytest.mark.django_db
def test_the_platforms_limit_counts_where_a_tenant_has_none_of_its_own(alice: Person, charlie: Person):
    default_quota_set(by=UserFactory(is_staff=True), resource=QUEUED, limit=0)
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=1)
    assert [submit(alice).status_code, submit(charlie).status_code] == [202, 409]


@pytest.mark.django_db
def test_a_paused_tenant_is_told_why_and_takes_jobs_again_when_it_is_resumed(alice: Person):
    operator = UserFactory(is_staff=True)
    tenant_pause(by=operator, tenant=alice.tenant, reason="an unpaid bill")
    answer = submit(alice)
    assert answer.status_code == 403
    assert "an unpaid bill" in answer.json()["detail"]
    tenant_resume(by=operator, tenant=alice.tenant)
    assert submit(alice).status_code == 202


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "change", "pointer"),
    [
        ("rl", {"collection": {"seats": 9, "episodes": 16}}, "/collection/seats"),
        ("evaluation", {"parallel": 9}, "/parallel"),
        ("rollout", {"parallel": 9}, "/parallel"),
    ],
)
def test_more_seats_than_could_ever_be_had_are_refused_at_once(
    alice: Person, kind: str, change: dict[str, Any], pointer: str
):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.ENV_SEATS, limit=8)
    spec = make_policy_spec(kind, make_adapter(alice), **change)
    with pytest.raises(ApplicationError) as refused:
        job_submit(tenant=alice.tenant, actor=alice.actor, spec=spec)
    error = refused.value.errors[0]
    assert (refused.value.status, error.pointer, error.code) == (422, pointer, "quota_exceeded")
    assert "9" in error.detail
    assert "1 to 8" in error.detail


@pytest.mark.django_db(transaction=True)
def test_of_eight_submits_at_once_with_room_for_one_exactly_one_is_admitted(alice: Person):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=1)
    spec = make_spec(make_version(alice))
    outcomes = all_at_once(lambda _: job_submit(tenant=alice.tenant, actor=alice.actor, spec=spec))
    told = Counter(one.code if isinstance(one, ApplicationError) else type(one).__name__ for one in outcomes)
    assert told == {"Job": 1, "quota_exceeded": 7}
    with platform_scope():
        assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_eight_requests_at_once_with_room_for_one_exactly_one_is_answered_202(alice: Person):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=1)
    version = make_version(alice)
    outcomes = all_at_once(lambda _: alice.api.post("/api/v1/jobs", make_spec(version)).status_code)
    assert Counter(outcomes) == {202: 1, 409: 7}


@pytest.mark.django_db(transaction=True)
def test_without_the_lock_several_submits_find_room_for_one(alice: Person, monkeypatch: pytest.MonkeyPatch):
    """Planted: the line is counted before the lock. The tests above would see more than one job."""
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=1)
    monkeypatch.setattr("jobs.services.admission.entry.queued_counts", lambda tenant: {})
    spec = make_spec(make_version(alice))
    outcomes = all_at_once(lambda _: job_submit(tenant=alice.tenant, actor=alice.actor, spec=spec), count=2)
    assert [type(one) for one in outcomes] == [Job, Job]


@pytest.mark.django_db
def test_a_refused_job_leaves_nothing_behind(alice: Person):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=0)
    assert submit(alice).status_code == 409
    with platform_scope():
        assert not Job.objects.exists()
    quota_set(by=alice.actor, tenant=alice.tenant, resource=QUEUED, limit=1)
    assert make_job(alice).state == "queued"
