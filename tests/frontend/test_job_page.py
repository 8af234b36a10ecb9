"""A job's page as Django sends it: its tabs, what can be done with it, and what differs from another job."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from frontend.views.job.tabs import TABS
from jobs.models import Job
from jobs.services.cancel import job_cancel
from jobs.services.transition import job_log
from tenants.scope import platform_scope
from tests.support.jobs import make_job
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PART = {"HX-Request": "true"}


def tables(queries: CaptureQueriesContext) -> Counter[str]:
    """How often each table is asked."""
    found = (re.search(r'(?:FROM|INTO|UPDATE) "(\w+)"', query["sql"]) for query in queries)
    return Counter(match[1] if match else "" for match in found)


def shown(person: Person, job: Job, query: str = "") -> str:
    answer = person.browser().get(f"/jobs/{job.pk}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


# What is on the page.


@pytest.mark.parametrize("tab", [tab.name for tab in TABS])
def test_every_tab_is_a_page_of_its_own_and_a_foreign_one_is_missing(story: Story, tab: str):
    job = make_job(story.alice)
    page = shown(story.viewer, job, f"?tab={tab}")
    assert f'href="?tab={tab}" id="tab-{tab}" aria-current="page"' in page
    foreign = story.charlie.browser().get(f"/jobs/{job.pk}/?tab={tab}")
    missing = story.charlie.browser().get(f"/jobs/{uuid4()}/?tab={tab}")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content


@pytest.mark.parametrize(
    "query",
    ["?tab=nonsense", "?tab=events&before=x", "?tab=events&before=" + "9" * 40, "?tab=logs&level=loud&q=%00",
     "?tab=spec&against=J-999", "?tab=spec&against=%00", "?tab=logs&q=" + "x" * 900, "?colour=red"],
)  # fmt: skip
def test_no_query_string_breaks_the_page(story: Story, query: str):
    shown(story.alice, make_job(story.alice), query)


def test_only_what_the_open_tab_shows_is_asked_for(story: Story):
    job = make_job(story.alice)
    asked = {}
    for tab in ("events", "logs", "spec", "charts"):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            shown(story.alice, job, f"?tab={tab}")
        asked[tab] = " ".join(query["sql"] for query in queries)
    assert "jobs_jobattempt" in asked["events"]
    assert not any("jobs_jobattempt" in asked[tab] for tab in ("logs", "spec", "charts"))


@pytest.mark.parametrize("tab", ["charts", "events", "logs", "spec"])
def test_a_long_life_costs_no_more_queries_than_a_short_one(story: Story, tab: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("frontend.shell.SPEND_AGE_S", 10**9)  # the month's spend is read again whenever it is old
    make_job(story.alice, name="another")
    job, browser = make_job(story.alice), story.alice.browser()
    path = f"/jobs/{job.pk}/?tab={tab}"
    browser.get(path)
    with CaptureQueriesContext(connection) as short:
        browser.get(path)
    for number in range(60):
        job_log(job, level="warning", message=f"line {number}")
    for number in range(4):
        make_job(story.alice, name=f"other {number}")
    with CaptureQueriesContext(connection) as long:
        browser.get(path)
    assert tables(long) == tables(short)
    assert len(long) < 60


def test_a_name_and_a_message_of_markup_are_text(story: Story):
    job = make_job(story.alice, name="<img src=x onerror=alert(1)>")
    job_log(job, level="error", message="<script>alert(2)</script>")
    for tab in TABS:
        page = shown(story.alice, job, f"?tab={tab.name}")
        assert "<img src=x" not in page
        assert "<script>alert(2)" not in page


def test_a_queued_job_says_its_place_what_is_to_come_and_that_nothing_is_billed(story: Story):
    make_job(story.alice)
    job = make_job(story.alice)
    page = shown(story.alice, job)
    assert "2 of 2 in line" in page
    assert "Nothing is billed before it runs" in page
    assert "No attempt yet" in page
    way = page[page.index('class="state"') : page.index("</ol>")]
    assert re.findall(r'<li class="todo">.*?</svg>(\w+)</div>', way) == ["Starting", "Running"]


def test_the_parts_that_are_read_anew_say_what_the_page_says(story: Story):
    job = make_job(story.alice, budget={"max_cost": "80"})
    fresh = story.alice.browser().get(f"/jobs/{job.pk}/now/").content.decode()
    page = shown(story.alice, job)
    for part in ("acts", "state", "cost", "stop"):
        assert f'data-now="{part}"' in fresh
        assert f'data-now="{part}"' in page
    for words in ("of €80.00 cap", "Still reserved for it", "50 %", "80 %"):
        assert words in fresh
        assert words in page


def test_a_live_job_says_what_is_left_of_the_budgets_it_is_paid_from(story: Story):
    assert story.alice.api.post("/api/v1/budgets", {"amount": "40"}).status_code == 201
    job = make_job(story.alice, budget={"max_cost": "10"})
    page = shown(story.viewer, job)
    assert "Budget, month of Alice&#x27;s lab" in page
    assert "€30.00 left" in page  # the job itself holds 10
    job_cancel(tenant=story.alice.tenant, job_id=job.pk, by=story.alice.actor)
    assert "Budget, month of" not in shown(story.viewer, job)


def test_an_ended_job_offers_to_run_again_and_a_live_one_to_cancel(story: Story):
    job = make_job(story.alice)
    assert "Cancel job" in shown(story.bob, job)
    assert "Run again" not in shown(story.bob, job)
    job_cancel(tenant=story.alice.tenant, job_id=job.pk, by=story.alice.actor)
    assert "Cancel job" not in shown(story.bob, job)
    assert "Run again" in shown(story.bob, job)
    page = shown(story.viewer, job)
    assert not any(words in page for words in ("Run again", "Add tag", "Write a note"))


def test_running_again_says_the_price_first_and_then_makes_a_job(story: Story):
    job = make_job(story.alice, name="push")
    browser = story.bob.browser()
    assert "The job is queued" in browser.get(f"/jobs/{job.pk}/retry/", headers=PART).content.decode()
    refused = browser.post(f"/jobs/{job.pk}/retry/")
    assert refused.status_code == 409
    assert "only a job that has ended" in refused.content.decode()
    job_cancel(tenant=story.alice.tenant, job_id=job.pk, by=story.alice.actor)
    told = browser.get(f"/jobs/{job.pk}/retry/", headers=PART).content.decode()
    assert "Reserved while it lives" in told
    assert "<html" not in told
    assert "<html" in browser.get(f"/jobs/{job.pk}/retry/").content.decode()
    answer = browser.post(f"/jobs/{job.pk}/retry/")
    with platform_scope():
        new = Job.objects.get(cloned_from=job.pk)
    assert answer["Location"] == f"/jobs/{new.pk}/"
    assert story.viewer.browser().post(f"/jobs/{job.pk}/retry/").status_code == 403


def test_the_time_line_goes_back_page_by_page_and_leaves_usual_log_lines_out(story: Story):
    job = make_job(story.alice)
    job_log(job, level="info", message="as usual")
    for number in range(105):
        job_log(job, level="warning", message=f"warning {number}")
    first = shown(story.alice, job, "?tab=events")
    assert "warning 104" in first
    assert "warning 4<" not in first
    assert "as usual" not in first
    older = re.search(r"tab=events&amp;before=(\d+)", first)
    assert older
    second = shown(story.alice, job, f"?tab=events&before={older[1]}")
    numbers = [int(seq) for page in (first, second) for seq in re.findall(r'data-seq="(\d+)"', page)]
    assert sorted(set(numbers)) == sorted(numbers) == [1, *range(3, 108)]


def test_the_log_tab_searches_and_filters_without_script(story: Story):
    job = make_job(story.alice)
    job_log(job, level="info", message="gripper opened")
    job_log(job, level="error", message="gripper lost")
    page = shown(story.alice, job, "?tab=logs&q=GRIPPER&level=error")
    assert "gripper lost" in page
    assert "gripper opened" not in page
    assert 'class="log-line of-state"' in shown(story.alice, job, "?tab=logs")


# The specification.


def test_a_clone_is_compared_with_its_parent_and_any_job_by_handle(story: Story):
    old = make_job(story.alice, name="old", training={"steps": 100})
    new = make_job(story.alice, name="new", training={"steps": 300}, cloned_from=str(old.pk))
    page = shown(story.alice, new, "?tab=spec")
    assert "training.steps" in page
    assert "<del>100</del>" in page
    assert "<ins>300</ins>" in page
    assert "which this job was made from" in page
    assert "cloned_from</td>" not in page
    third = make_job(story.alice, name="third", training={"steps": 7})
    for named in (f"J-{third.number}", f"j-{third.number}", str(third.number), str(third.pk)):
        assert "<del>7</del>" in shown(story.alice, new, f"?tab=spec&against={named}")
    foreign = make_job(story.charlie, name="secret plan")
    page = shown(story.alice, new, f"?tab=spec&against={foreign.pk}")
    assert "There is no job" in page
    assert "secret plan" not in page


def test_the_specification_is_a_file_that_can_be_submitted(story: Story):
    job = make_job(story.alice)
    answer = story.viewer.browser().get(f"/jobs/{job.pk}/spec/")
    assert answer.json() == job.spec
    assert f'filename="J-{job.number}.json"' in answer["Content-Disposition"]
