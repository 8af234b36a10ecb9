"""Lists with a hundred thousand jobs ask the database as often as lists with ten, and find their rows by an index."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.db.models import AutoField, Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend import shell
from jobs.models import Artifact, Job, JobEvent
from jobs.services.dispatch import jobs_ready
from jobs.states import JobState
from tenants.billing.models import UsageRollup
from tenants.models import Project, Tenant
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.support.factories import PASSWORD, UserFactory
from tests.support.jobs import make_spec, make_version
from tests.support.policy_jobs import make_manifest
from tests.support.story import Person

FEW, MANY = 10, 100_000
LIVE = 1000  # of many, the newest: half of them queued
USED = 9000  # jobs on the bill of a month: of more the answer in JSON is refused
TAG = "nightly"
SORTED = {"page of failed jobs"}  # the index finds what ended within days, in the order of their ends
MANY_ROWS = "jobs_(job|artifact|jobevent)"

pytestmark = pytest.mark.django_db


def add_jobs(person: Person, count: int) -> None:
    """Jobs with what every job has, some of them live; files, events and usage, as many."""
    with platform_scope():
        now = timezone.now()
        project, version = Project.objects.get(tenant=person.tenant, slug="default"), make_version(person)
        known = Tenant.objects.values_list("jobs_numbered", flat=True).get(pk=person.tenant.pk)
        job = Job.objects.create(
            tenant=person.tenant, number=known + 1, project=project, kind="sft", name="job", state=JobState.SUCCEEDED,
            spec={"training": {"batch_size": 16}}, base_model="tiny-qwen3-vl", head="mlp",
            dataset_version=version, created_by=person.user, step=1, finished_at=now,
        )  # fmt: skip
        live = min(LIVE, count // 2)
        copies(job, count - live - 1, created_at=now - timedelta(hours=1), number=Number(known + 2))
        for state, first in (
            (JobState.RUNNING, known + count - live + 1),
            (JobState.QUEUED, known + count - live // 2 + 1),
        ):
            copies(job, live // 2, state=state, number=Number(first))
        Tenant.objects.filter(pk=person.tenant.pk).update(jobs_numbered=known + count)
        tag_all(person.tenant)
        artifact = Artifact.objects.create(
            tenant=person.tenant, job=job, attempt=1, runtime_key="", kind="adapter", name="adapter",
            policy_version=1, size_bytes=1, sha256="0" * 64, manifest=make_manifest(), created_at=now,
        )  # fmt: skip
        copies(artifact, count - 1, runtime_key=Unique())
        Artifact.objects.filter(pk=artifact.pk).update(runtime_key=str(artifact.pk))
        event = JobEvent.objects.create(
            tenant=person.tenant, job=job, seq=1, attempt=1, type="log", data={}, occurred_at=now
        )
        copies(event, count - 1, seq=Number())
        used = UsageRollup.objects.create(
            tenant=person.tenant, period=now.date().replace(day=1), day=now.date(), job_id=job.pk,
            meter="train.samples", quantity=1, amount=Decimal(0), currency="EUR",
        )  # fmt: skip
        copies(used, min(count, USED) - 1, job_id=Unique())


def tag_all(tenant: Tenant) -> None:
    """One tag on every job that has none: the worst a tag can be."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobtag (tenant_id, job_id, name) SELECT tenant_id, id, %s FROM jobs_job "
            "WHERE tenant_id = %s AND id NOT IN (SELECT job_id FROM jobs_jobtag)",
            [TAG, Tenant._meta.pk.get_db_prep_save(tenant.pk, connection)],
        )


@dataclass(frozen=True, slots=True)
class Number:
    """The copy's own number, from ``first``."""

    first: int = 2


@dataclass(frozen=True, slots=True)
class Unique:
    """A value nobody else has."""


def copies(row: Model, count: int, **changes: Any) -> None:
    """More rows like this one, made by the database itself in one statement: a tenth of the time objects take."""
    unique = "gen_random_uuid()" if connection.vendor == "postgresql" else "lower(hex(randomblob(16)))"
    quote, values, taken = connection.ops.quote_name, [], []
    fields = [field for field in row._meta.concrete_fields if not isinstance(field, AutoField)]
    for field in fields:
        value = changes.get(field.attname, Unique() if field.primary_key else getattr(row, field.attname))
        if isinstance(value, (Unique, Number)):
            taken.append(f"n + {value.first - 2}" if isinstance(value, Number) else unique)
        else:
            taken.append("%s")
            values.append(field.get_db_prep_save(value, connection))
    columns = ", ".join(quote(str(field.column)) for field in fields)
    numbers = "WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n <= %s)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"{numbers} INSERT INTO {quote(row._meta.db_table)} ({columns}) SELECT {', '.join(taken)} FROM numbers "
            "WHERE n < %s + 2",
            [count + 1, *values, count],
        )


@pytest.fixture
def reads(alice: Person, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """Every list that jobs are on, and what they make."""
    monkeypatch.setattr(shell, "_spend_once", shell._spend_once.__wrapped__)  # else asked every 15 s only
    member, operator, spec = Client(), Client(), make_spec(make_version(alice))
    assert member.login(email=alice.user.email, password=PASSWORD)
    operator.force_login(UserFactory(is_staff=True, is_superuser=True))
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.QUEUED_JOBS, limit=MANY)
    return {
        "jobs": lambda: alice.api.get("/api/v1/jobs"),
        "waiting jobs": lambda: alice.api.get("/api/v1/jobs?state=queued&project=default&priority=5"),
        "jobs by name": lambda: alice.api.get("/api/v1/jobs?sort=name&archived=all"),
        "jobs by name, further on": lambda: alice.api.get(
            alice.api.get("/api/v1/jobs?sort=-name&state=queued&limit=1").data["next"]
        ),
        "tagged jobs": lambda: alice.api.get(f"/api/v1/jobs?tag={TAG}&owner={alice.user.email}&head=mlp"),
        "jobs found by text": lambda: alice.api.get("/api/v1/jobs?q=job"),
        "artifacts": lambda: alice.api.get("/api/v1/artifacts"),
        "events": lambda: alice.api.get(f"/api/v1/jobs/{newest_job(alice)}/events"),
        "usage by job": lambda: alice.api.get("/api/v1/usage?group_by=job"),
        "usage by day": lambda: alice.api.get("/api/v1/usage?group_by=day"),
        "quotas": lambda: alice.api.get("/api/v1/quotas"),
        "datasets": lambda: alice.api.get("/api/v1/datasets"),
        "estimate": lambda: alice.api.post("/api/v1/jobs/estimate", spec),
        "page of jobs": lambda: member.get("/jobs/"),
        "page of live jobs": lambda: member.get("/jobs/?state=live"),
        "page of tagged jobs": lambda: member.get(f"/jobs/?tag={TAG}&kind=sft&archived=all"),
        "page of jobs by name": lambda: member.get("/jobs/?sort=name&size=100"),
        "page of jobs by cost": lambda: member.get("/jobs/?sort=-cost&q=J-9"),
        "page of failed jobs": lambda: member.get("/jobs/?state=failed&ended=7"),
        "part of the page of jobs": lambda: member.get("/jobs/", headers={"HX-Request": "true"}),
        "first rows of the CSV": lambda: first_lines(member.get("/jobs/csv/?q=job")),
        "operators' jobs": lambda: operator.get("/admin/jobs/job/"),
        "operators' live jobs": lambda: operator.get("/admin/jobs/job/?state__exact=running"),
        "operators' artifacts": lambda: operator.get("/admin/jobs/artifact/"),
        "operators' events": lambda: operator.get("/admin/jobs/jobevent/"),
    }


def first_lines(response: Any) -> Any:
    """The answer, once its first rows are read: those of as many more reads are asked for like them."""

    async def read() -> bytes:
        return await anext(aiter(response.streaming_content))

    assert async_to_sync(read)().count(b"\n") > 1
    return response


def newest_job(person: Person) -> UUID:
    """The job whose time line is the longest."""
    with platform_scope():
        return JobEvent.objects.filter(tenant=person.tenant).order_by("-pk").values_list("job_id", flat=True)[0]


def statements(read: Callable[[], Any]) -> list[str]:
    """What one read asks the database, once its caller is known."""
    read()
    with CaptureQueriesContext(connection) as seen:
        answer = read()
    assert answer.status_code == 200, answer.content[:500]
    return [query["sql"] for query in seen]


def slow(statement: str) -> list[str]:
    """Steps in which SQLite's planner reads a table of jobs from end to end, or sorts all it finds there."""
    if connection.vendor != "sqlite" or not statement.startswith("SELECT"):
        return []
    with connection.cursor() as cursor:
        plan = [row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}")]
    sorts = "USE TEMP B-TREE FOR ORDER BY" in plan
    by_age = "LIMIT" in statement and "WHERE" not in statement and not sorts  # the newest rows of a table
    scanned = [step for step in plan if re.match(rf"SCAN {MANY_ROWS}\b(?!.*USING (COVERING )?INDEX)", step)]
    found = [step for step in plan if re.match(rf"(SCAN|SEARCH) {MANY_ROWS}\b(?!.*\(id=\?\))", step)]
    return (scanned if not by_age else []) + (found if sorts else [])


def test_lists_of_a_hundred_thousand_jobs_cost_as_many_queries_as_lists_of_ten(
    alice: Person, charlie: Person, reads: dict[str, Callable[[], Any]]
):
    add_jobs(alice, FEW)
    few = {name: len(statements(read)) for name, read in reads.items()}
    add_jobs(alice, MANY)
    many = {name: statements(read) for name, read in reads.items()}
    assert {name: len(asked) for name, asked in many.items()} == few
    by_index = many.keys() - SORTED
    assert [(name, step, asked) for name in by_index for asked in many[name] for step in slow(asked)] == []


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
