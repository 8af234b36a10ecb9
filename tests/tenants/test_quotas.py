"""Limits: which one counts, who may set it, what is told of it. Each change takes effect at once and is audited."""

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from jobs.services.dispatch import tenant_dispatch
from tenants.audit.models import AuditEvent
from tenants.errors import ApplicationError
from tenants.models import Project
from tenants.quotas.limits import limit_of, limits_read
from tenants.quotas.models import DefaultQuota, Quota, Resource
from tenants.quotas.services import default_quota_set, quota_set, quota_withdraw
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory, UserFactory, make_key
from tests.support.jobs import make_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_job
from tests.support.story import Person, api_client

pytestmark = pytest.mark.django_db
RUNNING = Resource.RUNNING_JOBS


def allow(person: Person, limit: int, resource: Resource = RUNNING, **more: Any) -> Quota:
    return quota_set(by=person.actor, tenant=person.tenant, resource=resource, limit=limit, **more)


def acts() -> list[tuple[str, Any, Any]]:
    with platform_scope():
        rows = AuditEvent.objects.filter(verb__contains="quota").order_by("pk")
        return [(row.verb, (row.before or {}).get("limit"), (row.after or {}).get("limit")) for row in rows]


@pytest.fixture
def second(alice: Person) -> Project:
    return ProjectFactory(tenant=alice.tenant, slug="second")


def test_a_tenant_without_limits_of_its_own_has_the_platforms(alice: Person):
    found = {resource: limits_read(alice.tenant).of_tenant(resource) for resource in Resource}
    assert found[RUNNING] == 16
    assert found[Resource.STORAGE_BYTES] == 100 * 10**9
    assert found[Resource.MONEY_PER_MONTH] is None
    assert found[Resource.COMPUTE_S_PER_JOB] is None
    default_quota_set(by=UserFactory(is_staff=True), resource=RUNNING, limit=5)
    assert limit_of(alice.tenant, RUNNING) == 5
    assert acts() == [("default_quota.set", 16, 5)]


def test_the_newest_limit_counts_and_replaces_the_one_before(alice: Person):
    allow(alice, 3)
    allow(alice, 7)
    assert limit_of(alice.tenant, RUNNING) == 7
    assert quota_withdraw(by=alice.actor, tenant=alice.tenant, resource=RUNNING)
    assert limit_of(alice.tenant, RUNNING) == 16, "the replaced one does not come back"
    assert not quota_withdraw(by=alice.actor, tenant=alice.tenant, resource=RUNNING)
    assert acts() == [("quota.set", None, 3), ("quota.set", 3, 7), ("quota.withdrawn", 7, None)]


def test_a_raise_for_a_while_ends_by_itself_and_the_limit_before_it_counts_again(alice: Person):
    allow(alice, 3)
    allow(alice, 9, expires_at=timezone.now() + timedelta(days=1))
    allow(alice, 12, expires_at=timezone.now() + timedelta(days=2))
    assert limit_of(alice.tenant, RUNNING) == 12
    with time_machine.travel(timezone.now() + timedelta(days=1, hours=1)):
        assert limit_of(alice.tenant, RUNNING) == 12
    with time_machine.travel(timezone.now() + timedelta(days=3)):
        assert limit_of(alice.tenant, RUNNING) == 3
        assert limits_read(alice.tenant).of_tenant(RUNNING) == 3


def test_a_project_has_no_limit_until_one_is_set_and_it_is_nobody_elses(alice: Person, second: Project):
    assert limit_of(alice.tenant, RUNNING, second) is None
    allow(alice, 2, project=second)
    assert limit_of(alice.tenant, RUNNING, second) == 2
    assert limits_read(alice.tenant).of_project(second.pk, RUNNING) == 2
    assert limit_of(alice.tenant, RUNNING) == 16
    with platform_scope():
        other = Project.objects.get(tenant=alice.tenant, slug="default")
    assert limit_of(alice.tenant, RUNNING, other) is None


def test_what_makes_no_sense_is_refused_with_what_is_allowed(alice: Person, second: Project):
    with pytest.raises(ApplicationError, match="0 to"):
        allow(alice, -1)
    with pytest.raises(ApplicationError, match="future"):
        allow(alice, 1, expires_at=timezone.now())
    with pytest.raises(ApplicationError, match="Allowed: running_jobs"):
        allow(alice, 1, Resource.REQUESTS_PER_MINUTE, project=second)
    with platform_scope():
        assert not Quota.objects.exists()


def test_the_platforms_limits_are_rows_an_operator_can_change():
    assert DefaultQuota.objects.count() == 7


def test_the_list_tells_limit_use_unit_and_where_it_comes_from(alice: Person):
    runtime = InMemoryRuntime()
    adapter = make_adapter(alice, job=make_job(alice))
    runtime.artifacts[adapter.runtime_key] = b"PK"
    allow(alice, 2, reason="a deadline", expires_at=timezone.now() + timedelta(days=1))
    make_policy_job(alice, "rl", adapter, collection={"seats": 6})
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    make_job(alice)
    rows = {row["resource"]: row for row in alice.api.get("/api/v1/quotas").json()["results"]}
    assert set(rows) == set(Resource)
    told = {name: (row["limit"], row["used"], row["unit"], row["source"]) for name, row in rows.items()}
    assert told["running_jobs"] == (2, 2, "jobs", "own")
    assert told["queued_jobs"] == (1000, 1, "jobs", "default")
    assert told["slots"] == (16, 2, "jobs", "default")
    assert told["env_seats"] == (64, 6, "seats", "default")
    assert told["uploads"] == (8, 0, "uploads", "default")
    assert told["requests_per_minute"] == (1200, None, "requests", "default")
    assert told["money_per_month"] == (None, 0, "EUR", "none")
    assert rows["running_jobs"]["expires_at"] is not None


def test_another_tenant_sees_its_own_limits_only(alice: Person, charlie: Person, second: Project):
    allow(alice, 2)
    allow(alice, 1, project=second)
    rows = charlie.api.get("/api/v1/quotas").json()["results"]
    assert [row["limit"] for row in rows if row["resource"] == "running_jobs"] == [16]
    assert all(row["project"] is None for row in rows)


def quota_of(person: Person, project: Project, resource: str = "running_jobs") -> tuple[Any, str, str]:
    path = f"/api/v1/projects/{project.pk}/quotas/{resource}"
    answer = person.api.get(path)
    return answer, path, answer.headers.get("ETag", "")


def test_an_owner_limits_a_project_with_the_etag_that_was_read(alice: Person, second: Project):
    answer, path, etag = quota_of(alice, second)
    assert (answer.json()["limit"], answer.json()["source"]) == (None, "none")
    put = alice.api.put(path, {"limit": 3}, headers={"If-Match": etag})
    assert put.status_code == 200
    assert (put.json()["limit"], put.json()["used"], put.json()["project"]["slug"]) == (3, 0, "second")
    assert put.headers["ETag"] != etag
    listed = [row for row in alice.api.get("/api/v1/quotas").json()["results"] if row["project"]]
    assert [(row["project"]["slug"], row["resource"], row["limit"]) for row in listed] == [
        ("second", "running_jobs", 3)
    ]
    assert f'"{listed[0]["etag"]}"' == put.headers["ETag"]
    assert alice.api.put(path, {"limit": 4}, headers={"If-Match": etag}).status_code == 412
    assert alice.api.put(path, {"limit": 4}).status_code == 428
    gone = alice.api.delete(path, headers={"If-Match": put.headers["ETag"]})
    assert gone.status_code == 204
    assert limit_of(alice.tenant, RUNNING, second) is None
    with platform_scope():
        last = AuditEvent.objects.filter(verb="quota.withdrawn").get()
    assert (last.actor_kind, last.object_type, last.object_id) == ("key", "project", str(second.pk))


def test_only_those_who_manage_quotas_change_them_and_only_their_own(
    alice: Person, bob: Person, viewer: Person, charlie: Person, second: Project
):
    _, path, etag = quota_of(alice, second)
    for person, status in ((bob, 403), (viewer, 403), (charlie, 404)):
        assert person.api.put(path, {"limit": 3}, headers={"If-Match": etag}).status_code == status
        assert person.api.delete(path, headers={"If-Match": etag}).status_code == status
    assert quota_of(viewer, second)[0].status_code == 200
    assert quota_of(charlie, second)[0].status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/limit"),
        ({"limit": -1}, "/limit"),
        ({"limit": 2**63}, "/limit"),
        ({"limit": "three"}, "/limit"),
        ({"limit": 1, "expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"limit": 1, "why": "x"}, "/why"),
    ],
)
def test_a_limit_that_is_wrong_is_refused_by_field(alice: Person, second: Project, body: dict[str, Any], pointer: str):
    _, path, etag = quota_of(alice, second)
    answer = alice.api.put(path, body, headers={"If-Match": etag})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("resource", ["requests_per_minute", "storage_bytes", "nonsense"])
def test_a_resource_that_no_project_is_limited_in_is_a_missing_page(alice: Person, second: Project, resource: str):
    assert quota_of(alice, second, resource)[0].status_code == 404


def test_a_key_of_one_project_does_not_see_the_limits_of_another(alice: Person, second: Project):
    allow(alice, 1, project=second)
    with platform_scope():
        mine = Project.objects.get(tenant=alice.tenant, slug="default")
    _, text = make_key(alice.tenant, "owner", alice.user, project=mine)
    api = api_client(text)
    assert {row["project"]["slug"] for row in api.get("/api/v1/quotas").json()["results"]} == {"default"}
    assert api.get(f"/api/v1/projects/{second.pk}/quotas/running_jobs").status_code == 404
