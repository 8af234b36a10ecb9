"""Why a job waits and how many are before it: in the API, in lists in one query, and on the pages."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Job
from jobs.services.cancel import job_cancel
from jobs.services.dispatch import tenant_dispatch
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tests.support.factories import ProjectFactory
from tests.support.jobs import make_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db
WAITS = "quota_running_jobs"


@pytest.fixture
def line(alice: Person, charlie: Person, runtime: InMemoryRuntime) -> dict[str, Job]:
    """One runs, three wait, the urgent one first; somebody else's line is nothing to them."""
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.RUNNING_JOBS, limit=1)
    ProjectFactory(tenant=alice.tenant, name="Second", slug="second")
    make_job(charlie, priority=9)
    jobs = {"running": make_job(alice, name="running")}
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    jobs["old"] = make_job(alice, name="old")
    jobs["young"] = make_job(alice, name="young", project="second")
    jobs["urgent"] = make_job(alice, name="urgent", priority=8, budget={"max_cost": "2.5"})
    tenant_dispatch(alice.tenant.pk, runtime=runtime)
    return jobs


def told(person: Person, **query: Any) -> dict[str, Any]:
    answer = person.api.get("/api/v1/jobs", query)
    assert answer.status_code == 200, answer.content
    return {row["name"]: row for row in answer.json()["results"]}


def test_the_list_tells_reason_and_position_of_those_that_wait(alice: Person, line: dict[str, Job]):
    assert {name: row["queue"] for name, row in told(alice).items()} == {
        "running": None,
        "urgent": {"reason": WAITS, "position": 1, "of": 3},
        "old": {"reason": WAITS, "position": 2, "of": 3},
        "young": {"reason": WAITS, "position": 3, "of": 3},
    }


def test_one_job_tells_the_same_and_its_project_priority_and_budget(alice: Person, line: dict[str, Job]):
    one = alice.api.get(f"/api/v1/jobs/{line['urgent'].pk}").json()
    assert one["queue"] == {"reason": WAITS, "position": 1, "of": 3}
    assert (one["project"], one["priority"]) == ("default", 8)
    assert one["budget"] == {"max_cost": "2.5", "max_compute_s": None}
    assert alice.api.get(f"/api/v1/jobs/{line['young'].pk}").json()["project"] == "second"


def test_a_position_rises_when_somebody_before_it_is_gone(alice: Person, line: dict[str, Job]):
    job_cancel(tenant=alice.tenant, job_id=line["urgent"].pk)
    assert told(alice)["young"]["queue"] == {"reason": WAITS, "position": 2, "of": 2}


def test_lists_are_filtered_by_project_and_priority(alice: Person, line: dict[str, Job]):
    assert set(told(alice, project="second")) == {"young"}
    assert set(told(alice, priority=8)) == {"urgent"}
    assert told(alice, project="second")["young"]["queue"]["position"] == 3, "in the line of all projects"
    assert told(alice, project="nowhere") == {}
    assert alice.api.get("/api/v1/jobs", {"priority": 10}).status_code == 422


def test_a_list_asks_once_for_all_places(alice: Person, line: dict[str, Job]):
    told(alice)  # the key notes when it was used last
    with CaptureQueriesContext(connection) as few:
        told(alice)
    for _ in range(5):
        make_job(alice)
    with CaptureQueriesContext(connection) as many:
        told(alice)
    assert len(few) == len(many)


def test_the_pages_show_place_and_reason_and_filter_by_what_there_is(alice: Person, line: dict[str, Job]):
    browser = alice.browser()
    page = browser.get("/jobs/").content.decode()
    assert "Number 1 of 3" in page
    assert "Number 3 of 3" in page
    assert "limit of running jobs is 1; it starts when enough of them have ended." in page
    one = browser.get(f"/jobs/{line['old'].pk}/").content.decode()
    assert "2 of 3 in line" in one
    assert "in line" not in browser.get(f"/jobs/{line['running'].pk}/").content.decode()
    second = browser.get("/jobs/?project=second").content.decode()
    assert "young" in second
    assert "urgent" not in second
    urgent = browser.get("/jobs/?priority=8").content.decode()
    assert "urgent" in urgent
    assert "young" not in urgent
    assert "urgent" in browser.get("/jobs/?priority=99&project=nobody").content.decode(), "unknown filters are none"


def test_a_job_page_tells_project_priority_and_budget(alice: Person, line: dict[str, Job]):
    page = alice.browser().get(f"/jobs/{line['urgent'].pk}/").content.decode()
    assert "2.5 EUR" in page
    assert "Priority" in page
