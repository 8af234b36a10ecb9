"""Finding jobs: every filter, every order, and cursors that skip and repeat nothing."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from jobs.api import paging
from jobs.api.queries import WantedState
from jobs.models import Job
from jobs.selectors.filters import STATE_LIVE, JobFilter, JobSort
from jobs.selectors.jobs import job_list
from jobs.states import JobState
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory
from tests.support.jobs import make_job, make_version
from tests.support.story import Person, Story, make_story

pytestmark = pytest.mark.django_db

PATH = "/api/v1/jobs"


def names(person: Person, query: str) -> list[str]:
    answer = person.api.get(f"{PATH}?{query}")
    assert answer.status_code == 200, answer.content
    return [row["name"] for row in answer.json()["results"]]


def found(person: Person, **wanted: Any) -> list[str]:
    with platform_scope():
        return sorted(job.name for job in job_list(person.tenant, JobFilter(**wanted)))


def change(job: Job, **columns: Any) -> None:
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(**columns)


@pytest.fixture
def jobs(alice: Person, bob: Person) -> dict[str, Job]:
    """Three jobs that differ in everything there is to filter by."""
    ProjectFactory(tenant=alice.tenant, slug="grasping")
    peg = make_job(alice, name="lift the peg", tags=["paper-fig3"], project="grasping", priority=7)
    cube = make_job(bob, name="push the cube", tags=["nightly", "paper-fig3"])
    bowl = make_job(bob, name="Bowl")
    change(peg, base_model="qwen3-vl-4b", head="pi", note="diverges at step 40")
    change(bowl, kind="evaluation", state="failed", finished_at=datetime.now(UTC) - timedelta(days=3))
    return {"peg": peg, "cube": cube, "bowl": bowl}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tag=paper-fig3", ["push the cube", "lift the peg"]),
        ("tag=nightly", ["push the cube"]),
        ("tag=other", []),
        ("head=pi", ["lift the peg"]),
        ("base_model=qwen3-vl-4b", ["lift the peg"]),
        ("owner=bob@example.org", ["Bowl", "push the cube"]),
        ("owner=BOB@example.org&kind=evaluation", ["Bowl"]),
        ("owner=charlie@example.org", []),
        ("state=live", ["push the cube", "lift the peg"]),
        ("state=failed", ["Bowl"]),
        ("project=grasping", ["lift the peg"]),
        ("priority=7", ["lift the peg"]),
        ("q=CUBE", ["push the cube"]),
        ("q=fig3", ["push the cube", "lift the peg"]),
        ("q=diverges", ["lift the peg"]),
        ("q=J-2", ["push the cube"]),
        ("q=j-2", ["push the cube"]),
        ("q=100%25", []),
        ("sort=name", ["Bowl", "lift the peg", "push the cube"]),
        ("sort=-name", ["push the cube", "lift the peg", "Bowl"]),
        ("sort=created_at", ["lift the peg", "push the cube", "Bowl"]),
        ("sort=-created_at", ["Bowl", "push the cube", "lift the peg"]),
    ],
)
def test_each_filter_finds_its_jobs_and_no_others(
    alice: Person, jobs: dict[str, Job], query: str, expected: list[str]
) -> None:
    assert names(alice, query) == expected


def test_a_job_is_found_by_its_id_and_a_foreign_one_is_not(
    alice: Person, charlie: Person, jobs: dict[str, Job]
) -> None:
    assert names(alice, f"q={jobs['peg'].pk}") == ["lift the peg"]
    assert names(charlie, f"q={jobs['peg'].pk}") == []


def test_ended_within_days_looks_at_the_end_not_at_the_submit(alice: Person, jobs: dict[str, Job]) -> None:
    change(jobs["bowl"], created_at=datetime.now(UTC) - timedelta(days=30))
    assert found(alice, ended_days=7) == ["Bowl"]
    assert found(alice, ended_days=2) == []


@pytest.mark.parametrize(
    "query",
    ["sort=cost", "sort=state", "tag=UPPER", "archived=maybe", "owner=" + "x" * 300, "state=dropped", "cursor=abc"],
)
def test_what_no_list_can_be_is_refused_by_name(alice: Person, query: str) -> None:
    answer = alice.api.get(f"{PATH}?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "?" + query.split("=")[0]


def test_every_state_can_be_asked_for() -> None:
    assert set(get_args(WantedState)) == {*JobState, STATE_LIVE}


def cursor(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        cursor("name", False, "a", 1),  # of another order
        cursor("-created_at", False, "yesterday", 1),
        cursor("-created_at", False, "0001-01-01T00:00:00+23:00", 1),
        cursor("-created_at", False, "2026-01-01T00:00:00", 1),
        cursor("-created_at", 1, "2026-01-01T00:00:00+00:00", 1),
        cursor("-created_at", False, "2026-01-01T00:00:00+00:00", True),
        cursor("-created_at", False, "2026-01-01T00:00:00+00:00", 2**40),
        cursor("-created_at", False),
        base64.urlsafe_b64encode(b"[" * 1000).decode(),
        "%25%25",
    ],
)
def test_a_cursor_that_no_answer_contained_is_refused(alice: Person, text: str) -> None:
    answer = alice.api.get(f"{PATH}?cursor={text}")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "cursor_invalid")


def walk(person: Person, sort: str, limit: int, *, back: bool = False) -> list[int]:
    """Numbers of all jobs by following the links; with ``back``, to the end and back again."""
    page = person.api.get(f"{PATH}?sort={sort}&limit={limit}").json()
    seen = [row["number"] for row in page["results"]]
    while page["next"]:
        page = person.api.get(page["next"]).json()
        seen += [row["number"] for row in page["results"]]
    if not back:
        return seen
    seen = [row["number"] for row in page["results"]]
    while page["previous"]:
        page = person.api.get(page["previous"]).json()
        seen = [row["number"] for row in page["results"]] + seen
    return seen


def rewrite(person: Person, rows: list[tuple[str, int]]) -> None:
    """Jobs of these names and ages in minutes: copies of one."""
    first = make_job(person)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with platform_scope():
        Job.objects.filter(tenant=person.tenant).exclude(pk=first.pk).delete()
        copies = [
            Job(
                tenant=person.tenant, number=1000 + at, project_id=first.project_id, kind="sft", name=name, spec={},
                base_model="b", head="mlp", dataset_version_id=first.dataset_version_id,
            )
            for at, (name, _) in enumerate(rows)
        ]  # fmt: skip
        Job.objects.bulk_create(copies)
        for copy, (_, minutes) in zip(copies, rows, strict=True):
            Job.objects.filter(pk=copy.pk).update(created_at=moment + timedelta(minutes=minutes))
        Job.objects.filter(pk=first.pk).update(number=999, name="é", created_at=moment)


def in_order(person: Person, sort: str) -> list[int]:
    """What the walk must give, sorted here and not by the database; equals by number."""
    with platform_scope():
        rows = list(Job.objects.filter(tenant=person.tenant))
    column = sort.removeprefix("-")
    return [
        row.number
        for row in sorted(rows, key=lambda row: (getattr(row, column), row.number), reverse=sort.startswith("-"))
    ]


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ab", "B", "ü", "a'--", "%"]), st.integers(0, 3)), min_size=1, max_size=9
)


class Walks(TestCase):
    """Names and times of which many are equal."""

    story: Story

    @classmethod
    def setUpTestData(cls) -> None:
        cls.story = make_story()

    @settings(max_examples=25, deadline=None)
    @given(rows=ROWS, limit=st.integers(1, 4), sort=st.sampled_from(list(JobSort)), back=st.booleans())
    def test_following_the_links_gives_every_job_once_and_in_order(
        self, rows: list[tuple[str, int]], limit: int, sort: JobSort, back: bool
    ) -> None:
        rewrite(self.story.alice, rows)
        seen = walk(self.story.alice, sort, limit, back=back)
        assert sorted(seen) == sorted(in_order(self.story.alice, sort))
        with platform_scope():  # a database may collate names its own way; the walk follows it
            stored = job_list(self.story.alice.tenant, JobFilter(sort=sort)).values_list("number", flat=True)
            assert seen == list(stored)


def test_the_walk_finds_a_cursor_that_forgets_equal_names(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: only what is truly beyond the value, as if names were unique."""
    rewrite(alice, [("same", 0)] * 6)
    assert walk(alice, "name", 2) == in_order(alice, "name")

    def beyond(self: paging.JobCursor) -> Any:
        from django.db.models import Q

        return Q(name__gt=self.value)

    monkeypatch.setattr(paging.JobCursor, "beyond", beyond)
    assert walk(alice, "name", 2) != in_order(alice, "name")


def test_jobs_that_come_while_somebody_walks_shift_nothing(alice: Person) -> None:
    version = make_version(alice)
    for number in range(4):
        make_job(alice, name=f"job {number}")
    page = alice.api.get(f"{PATH}?limit=2").json()
    make_job(alice, name="newer", dataset={"id": str(version.pk)})
    rest = alice.api.get(page["next"]).json()
    assert [row["name"] for row in page["results"] + rest["results"]] == ["job 3", "job 2", "job 1", "job 0"]
    assert [row["name"] for row in alice.api.get(rest["previous"]).json()["results"]] == ["job 3", "job 2"]


def test_a_long_name_fits_into_a_cursor(alice: Person) -> None:
    for _ in range(2):
        make_job(alice, name="\U0001f916" * 200)
    assert walk(alice, "name", 1) == [1, 2]
