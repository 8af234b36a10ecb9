"""Lists with a hundred thousand jobs ask the database as often as lists with ten, and find their rows by an index."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend.views import page
from jobs.models import Artifact, Job
from jobs.services.dispatch import jobs_ready
from jobs.states import JobState
from tenants.models import Project
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.support.factories import PASSWORD, UserFactory
from tests.support.jobs import make_spec, make_version
from tests.support.policy_jobs import make_manifest
from tests.support.story import Person

FEW, MANY = 10, 100_000
LIVE = 1000  # of many, the newest: half of them queued

pytestmark = pytest.mark.django_db


def add_jobs(person: Person, count: int) -> None:
    """Jobs with nothing but what every job has, some of them live, and an artifact of every hundredth."""
    with platform_scope():
        project, version = Project.objects.get(tenant=person.tenant, slug="default"), make_version(person)
        now, states = timezone.now(), (JobState.QUEUED, JobState.RUNNING)
        jobs = [
            Job(
                tenant=person.tenant, project=project, kind="sft", name=f"job {number}",
                spec={"training": {"batch_size": 16}}, base_model="tiny-qwen3-vl", head="mlp",
                dataset_version=version, created_by=person.user, step=1, finished_at=now,
                state=JobState.SUCCEEDED if number < max(2, count - LIVE) else states[number % 2],
            )
            for number in range(count)
        ]  # fmt: skip
        Job.objects.bulk_create(jobs, batch_size=2000)
        Artifact.objects.bulk_create(
            Artifact(
                tenant=person.tenant, job=job, attempt=1, runtime_key=str(job.pk), kind="adapter", name="adapter",
                policy_version=1, size_bytes=1, sha256="0" * 64, manifest=make_manifest(), created_at=now,
            )
            for job in jobs[::100]
        )  # fmt: skip


@pytest.fixture
def reads(alice: Person, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """Every list that jobs are on, and what they make."""
    monkeypatch.setattr(page, "_spend_once", page._spend_once.__wrapped__)  # else asked every 15 s only
    member, operator, spec = Client(), Client(), make_spec(make_version(alice))
    assert member.login(email=alice.user.email, password=PASSWORD)
    operator.force_login(UserFactory(is_staff=True, is_superuser=True))
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.QUEUED_JOBS, limit=MANY)
    return {
        "jobs": lambda: alice.api.get("/api/v1/jobs"),
        "waiting jobs": lambda: alice.api.get("/api/v1/jobs?state=queued&project=default&priority=5"),
        "artifacts": lambda: alice.api.get("/api/v1/artifacts"),
        "usage": lambda: alice.api.get("/api/v1/usage?group_by=job"),
        "quotas": lambda: alice.api.get("/api/v1/quotas"),
        "datasets": lambda: alice.api.get("/api/v1/datasets"),
        "estimate": lambda: alice.api.post("/api/v1/jobs/estimate", spec),
        "page of jobs": lambda: member.get("/jobs/"),
        "page of live jobs": lambda: member.get("/jobs/?state=live"),
        "operators' jobs": lambda: operator.get("/admin/jobs/job/"),
        "operators' artifacts": lambda: operator.get("/admin/jobs/artifact/"),
    }


def statements(read: Callable[[], Any]) -> list[str]:
    """What one read asks the database, once its caller is known."""
    read()
    with CaptureQueriesContext(connection) as seen:
        answer = read()
    assert answer.status_code == 200, answer.content[:500]
    return [query["sql"] for query in seen]


def scans(statement: str) -> list[str]:
    """Tables of jobs that SQLite's planner reads from end to end for a statement; another database is not asked."""
    if connection.vendor != "sqlite" or not statement.startswith("SELECT"):
        return []
    with connection.cursor() as cursor:
        plan = [row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}")]
    return [step for step in plan if re.match(r"SCAN jobs_(job|artifact)\b(?!.*USING (COVERING )?INDEX)", step)]


def test_lists_of_a_hundred_thousand_jobs_cost_as_many_queries_as_lists_of_ten(
    alice: Person, charlie: Person, reads: dict[str, Callable[[], Any]]
):
    add_jobs(alice, FEW)
    few = {name: len(statements(read)) for name, read in reads.items()}
    add_jobs(alice, MANY)
    many = {name: statements(read) for name, read in reads.items()}
    assert {name: len(asked) for name, asked in many.items()} == few
    own = [name for name in many if not name.startswith("operators")]  # operators' lists are of all tenants
    assert [(name, step) for name in own for asked in many[name] for step in scans(asked)] == []


def test_a_turn_in_a_long_line_is_found_without_reading_the_whole_of_it(alice: Person):
    add_jobs(alice, 2 * LIVE)
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.SLOTS, limit=2 * LIVE)
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.RUNNING_JOBS, limit=LIVE // 2 + 3)
    with CaptureQueriesContext(connection) as seen:
        ready = jobs_ready(alice.tenant.pk)
    assert len(ready) == 3
    notes = sum("INSERT" in query["sql"] for query in seen)
    with CaptureQueriesContext(connection) as again:
        assert len(jobs_ready(alice.tenant.pk)) == 3
    assert notes > 0
    assert len(again) <= 6, "those that wait have been told; nothing is written again"
