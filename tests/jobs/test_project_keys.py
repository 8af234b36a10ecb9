"""A key bound to a project: its jobs go there, and jobs of other projects do not exist for it."""

import uuid

import pytest
from django.utils import timezone

from jobs.models import Artifact, Job
from tenants.scope import platform_scope, project_in_scope, project_scope
from tests.support.factories import ProjectFactory, make_key
from tests.support.jobs import make_job
from tests.support.story import Api, Person, api_client

pytestmark = pytest.mark.django_db


def artifact_of(job: Job) -> Artifact:
    with platform_scope():
        return Artifact.objects.create(
            tenant=job.tenant, job=job, attempt=1, runtime_key=str(uuid.uuid4()), kind="adapter", name="policy",
            policy_version=1, size_bytes=1, sha256="0" * 64, manifest={}, created_at=timezone.now(),
        )  # fmt: skip


@pytest.fixture
def bound(alice: Person) -> Api:
    project = ProjectFactory(tenant=alice.tenant, slug="grasping")
    return api_client(make_key(alice.tenant, "researcher", alice.user, project=project)[1])


def job_in(person: Person, slug: str) -> Job:
    job = make_job(person)
    with platform_scope():
        project = type(job.project).objects.get(tenant=person.tenant, slug=slug)
        Job.objects.filter(pk=job.pk).update(project=project)
        job.refresh_from_db()
    return job


def test_it_lists_and_reads_jobs_and_artifacts_of_its_project_only(alice: Person, bound: Api):
    own, other = job_in(alice, "grasping"), job_in(alice, "default")
    kept, foreign = artifact_of(own), artifact_of(other)
    assert [row["id"] for row in bound.get("/api/v1/jobs").json()["results"]] == [str(own.pk)]
    assert [row["id"] for row in bound.get("/api/v1/artifacts").json()["results"]] == [str(kept.pk)]
    assert bound.get(f"/api/v1/jobs/{own.pk}").status_code == 200
    assert bound.get(f"/api/v1/artifacts/{kept.pk}").status_code == 200
    for path in ["", "/events", "/metrics", "/metrics?format=csv", "/artifacts", "/policy-versions", "/evaluation"]:
        assert bound.get(f"/api/v1/jobs/{other.pk}{path}").status_code == 404, path
    for path in ["", "/download"]:
        assert bound.get(f"/api/v1/artifacts/{foreign.pk}{path}").status_code == 404, path
    for path in ["cancel", "dataset-import"]:
        assert bound.post(f"/api/v1/jobs/{other.pk}/{path}").status_code == 404, path


def test_everybody_else_of_the_tenant_sees_both(alice: Person, bound: Api):
    jobs = {str(job_in(alice, slug).pk) for slug in ("grasping", "default")}
    assert {row["id"] for row in alice.api.get("/api/v1/jobs").json()["results"]} == jobs


def test_the_project_is_closed_after_the_request_and_after_an_error(bound: Api):
    bound.get("/api/v1/jobs")
    assert project_in_scope() is None
    with pytest.raises(ZeroDivisionError):
        with project_scope(uuid.uuid4()):
            _ = 1 / 0
    assert project_in_scope() is None
