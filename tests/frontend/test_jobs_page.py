"""The job list as Django sends it: filters in the address, bounded counts, acts that ask first, a harmless CSV."""

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from frontend.views.jobs import rows, saved
from frontend.views.jobs.asked import asked_of
from frontend.views.jobs.results import _interval
from gpu_runtime.protocol.messages import MetricsRecorded, WorkloadState
from jobs.models import Job, MetricPoint
from jobs.services.bulk import BulkAction, jobs_act
from jobs.services.cancel import job_cancel
from jobs.services.describe import job_describe
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory
from tests.support.jobs import make_job, relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

PART = {"HX-Request": "true"}


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    from jobs import runtime_client

    runtime = InMemoryRuntime()
    monkeypatch.setattr(runtime_client, "connect", lambda: runtime)
    return runtime


def page(person: Person, query: str = "", **headers: str) -> str:
    answer = person.browser().get(f"/jobs/{query}", headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def names(html: str) -> list[str]:
    return re.findall(r'data-row-link href="[^"]+">([^<]*)</a>', html)


def act(person: Person, job_ids: list[str], action: str, **fields: str) -> Any:
    return person.browser().post("/jobs/act/", {"job": job_ids, "action": action, **fields}, headers=PART)


def sheet(person: Person, query: str = "") -> list[dict[str, str]]:
    answer = person.browser().get(f"/jobs/csv/{query}")

    async def read() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return list(csv.DictReader(io.StringIO(async_to_sync(read)().decode())))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["evaluate", "push", "lift"]),
        ("?tag=fig3", ["lift"]),
        ("?project=grasping", ["lift"]),
        ("?owner={bob}", ["evaluate", "push"]),
        ("?state=live&kind=sft", ["push", "lift"]),
        ("?priority=8", ["lift"]),
        ("?q=J-2", ["push"]),
        ("?q=note+of+push", ["push"]),
        ("?sort=name", ["evaluate", "lift", "push"]),
        ("?sort=-name", ["push", "lift", "evaluate"]),
        ("?sort=created_at&size=25", ["lift", "push", "evaluate"]),
        ("?sort=-cost", ["evaluate", "push", "lift"]),
    ],
)
def test_each_filter_and_order_of_the_address_is_applied(story: Story, query: str, expected: list[str]):
    ProjectFactory(tenant=story.alice.tenant, slug="grasping")
    make_job(story.alice, name="lift", tags=["fig3"], project="grasping", priority=8)
    push = make_job(story.bob, name="push")
    job_describe(by=None, tenant=story.bob.tenant, job_id=push.pk, note="the note of push")
    kind = make_job(story.bob, name="evaluate")
    with platform_scope():
        Job.objects.filter(pk=kind.pk).update(state="failed", kind="evaluation")
    assert names(page(story.alice, query.format(bob=story.bob.user.pk))) == expected


@pytest.mark.parametrize(
    "query",
    ["state=asleep", "owner=12345", "owner=x", "sort=colour", "col=colour", "page=0", "size=7", "ended=0", "foo=bar",
     "archived=maybe", "priority=12", "project=nowhere", "page=99999999999999999"],
)  # fmt: skip
def test_what_the_list_does_not_know_is_said_and_changes_nothing(story: Story, query: str):
    make_job(story.alice, name="push")
    html = page(story.alice, f"?{query}&q=push")
    assert names(html) == ["push"]
    assert f"does not know it: {query}" in html


def test_columns_are_chosen_and_kept_by_every_link(story: Story):
    make_job(story.alice, name="push", priority=7)
    html = page(story.alice, "?col=priority&col=note&q=push")
    heads = re.findall(r"<th[^>]*>(?:<a[^>]*>)?\s*([A-Z][a-z]+)", html)
    assert heads == ["Job", "State", "Priority", "Note"]
    assert 'href="?col=priority&amp;col=note&amp;q=push&amp;sort=name"' in html


def test_archived_jobs_are_hidden_until_asked_for(story: Story):
    job = make_job(story.alice, name="old")
    job_cancel(tenant=story.alice.tenant, job_id=job.pk)
    job_describe(by=None, tenant=story.alice.tenant, job_id=job.pk, archived=True)
    assert names(page(story.alice)) == []
    assert names(page(story.alice, "?archived=only")) == names(page(story.alice, "?archived=all")) == ["old"]
    assert story.alice.browser().get(f"/jobs/{job.pk}/").status_code == 200


def test_counts_stop_at_a_bound_and_too_many_are_not_sorted_by_cost(story: Story, monkeypatch: pytest.MonkeyPatch):
    for number in range(4):
        make_job(story.alice, name=f"job {number}")
    assert 'All <span class="u">4</span>' in page(story.alice)
    for module in (rows, saved):
        monkeypatch.setattr(module, "COUNTED_MAX", 3)
    html = page(story.alice, "?sort=-cost")
    assert 'All <span class="u">2+</span>' in html
    assert "too many to sort by cost" in html
    assert names(html) == ["job 3", "job 2", "job 1", "job 0"]


def test_pages_go_on_without_counting_and_an_empty_one_leads_back(story: Story):
    for number in range(27):
        make_job(story.alice, name=f"job {number:02}")
    first, second = page(story.alice, "?size=25"), page(story.alice, "?size=25&page=2")
    assert (len(names(first)), names(second)) == (25, ["job 01", "job 00"])
    assert 'rel="next" href="?size=25&amp;page=2"' in first
    assert 'rel="prev" href="?size=25"' in second
    assert "There is no page 3" in page(story.alice, "?size=25&page=3")


def test_a_part_brings_the_rows_the_tabs_and_the_count_and_nothing_of_the_frame(story: Story):
    make_job(story.alice, name="push")
    part = page(story.alice, "", **PART)
    assert names(part) == ["push"]
    assert part.count('hx-swap-oob="true"') == 2
    assert "<html" not in part
    assert "<form" not in part


def test_a_row_says_why_a_job_waits_how_far_it_is_and_what_it_has_come_to(story: Story, runtime: InMemoryRuntime):
    running, key = start_job(story.alice, runtime, name="running")
    make_job(story.alice, name="waiting")
    runtime.tell_state(*key, WorkloadState.RUNNING)
    runtime.train_step([key], 1, busy_us=2000)
    runtime.tell(*key, MetricsRecorded(step=1, values={"train/loss": 0.04123}))
    relay_all(runtime)
    html = page(story.alice)
    assert "Number 1 of 1. Starts soon" in html
    assert "1 of 200 steps" in html
    assert "0.0412" in html
    assert f"J-{running.number} · SFT · " in html
    assert "swatch r1" in html


def test_the_list_the_home_page_and_the_jobs_own_page_say_the_same_time_left(
    story: Story, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    job, key = start_job(story.alice, runtime, name="paced")
    runtime.tell_state(*key, WorkloadState.RUNNING)
    for step in range(1, 5):
        runtime.tell(*key, MetricsRecorded(step=step, values={"train/loss": 1.0 / step, "lr": 1e-4}))
    relay_all(runtime)
    now = timezone.now()
    with platform_scope():
        for step in range(1, 5):  # one step in ten minutes, the last one just now
            at = now - timedelta(minutes=10 * (4 - step))
            MetricPoint.objects.filter(job_id=job.pk, step=step).update(occurred_at=at)
        Job.objects.filter(pk=job.pk).update(step=4, total_steps=10)
    browser = story.alice.browser()
    for path in ("/jobs/", "/", f"/jobs/{job.pk}/"):
        text = browser.get(path).content.decode().replace("\u00a0", " ").replace("&nbsp;", " ")
        assert "1 h 0 min" in text, path


@pytest.mark.parametrize(
    ("share", "episodes", "text"),
    [(0.76, 50, "62.6–85.7"), (0.0, 10, "0.0–27.8"), (1.0, 10, "72.2–100.0"), (0.5, None, ""), (0.5, 0, "")],
)
def test_a_rate_has_the_wilson_interval_of_its_episodes(share: float, episodes: float | None, text: str):
    assert _interval(share, episodes) == text


def test_an_act_asks_before_it_does_anything_and_says_what_it_means(story: Story, runtime: InMemoryRuntime):
    waiting, (started, _) = make_job(story.alice, name="waits"), start_job(story.alice, runtime, name="runs")
    asked = act(story.alice, [str(waiting.pk), str(started.pk)], "cancel").content.decode()
    assert "Cancel 2 jobs?" in re.sub(r"\s+", " ", asked)
    assert "What was used stays on the bill: €0.00 so far." in asked
    assert "1 waits and ends at once, without cost." in asked
    assert asked.index("Keep running") < asked.index("Cancel 2 jobs</button>")
    assert [reread(job).state for job in (waiting, started)] == ["queued", "starting"]
    told = act(story.alice, [str(waiting.pk), str(started.pk)], "cancel", sure="1").content.decode()
    assert "2 of 2 jobs cancelled or told to stop" in told
    assert [reread(job).state for job in (waiting, started)] == ["cancelled", "cancelling"]


def test_what_is_refused_is_told_job_by_job(story: Story):
    ended, live = make_job(story.alice, name="ended"), make_job(story.alice, name="live")
    job_cancel(tenant=story.alice.tenant, job_id=ended.pk)
    told = act(story.alice, [str(ended.pk), str(live.pk)], "archive", sure="1").content.decode()
    assert "1 of 2 jobs archived" in told
    assert "The job is queued. Allowed: archiving one that has ended" in told
    assert told.count("data-done=") == 1


@pytest.mark.parametrize(
    ("action", "ids", "words"),
    [("delete", ["{job}"], "Allowed: cancel, archive"), ("cancel", [], "0 jobs are selected"),
     ("cancel", ["x"], "Allowed: ids of your jobs")],
)  # fmt: skip
def test_an_act_the_page_never_sends_is_refused_in_words(story: Story, action: str, ids: list[str], words: str):
    job = make_job(story.alice)
    sent = [text.format(job=job.pk) for text in ids]
    assert words in act(story.alice, sent, action).content.decode()
    whole = story.alice.browser().post("/jobs/act/", {"job": sent, "action": action})
    assert (whole.status_code, words in whole.content.decode()) == (422, True)


def test_a_tag_that_is_not_allowed_stays_in_its_field_with_the_reason(story: Story):
    job = make_job(story.alice)
    html = act(story.alice, [str(job.pk)], "tag", tag="No Good", sure="1").content.decode()
    assert 'value="No Good"' in html
    assert 'class="err"' in html
    assert 'name="sure"' in html


def test_nobody_acts_on_what_is_not_theirs_or_without_the_right(story: Story):
    job = make_job(story.alice, name="secret plan")
    foreign = act(story.charlie, [str(job.pk)], "cancel").content.decode()
    assert "secret plan" not in foreign
    told = act(story.charlie, [str(job.pk)], "cancel", sure="1").content.decode()
    assert "0 of 1 job" in told
    assert "secret plan" not in told
    assert act(story.viewer, [str(job.pk)], "cancel", sure="1").status_code == 403
    assert 'value="cancel"' not in page(story.viewer)
    assert reread(job).state == "queued"


def test_a_csv_with_a_filter_nobody_understands_leads_to_the_page_that_says_so(story: Story):
    answer = story.alice.browser().get("/jobs/csv/?state=sleeping&q=cube", follow=True)
    assert answer.redirect_chain == [("/jobs/?state=sleeping&q=cube", 302)]
    assert "state=sleeping" in answer.content.decode()


def test_the_csv_has_every_matching_job_and_no_formula(story: Story, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("frontend.views.jobs.sheet.PER_READ", 2)
    for name in ("=1+1", "@cmd", "push one", "push two", "push three"):
        make_job(story.alice, name=name, tags=["a", "b"])
    make_job(story.charlie, name="push of another lab")
    lines = sheet(story.alice)
    assert [line["name"] for line in lines] == ["push three", "push two", "push one", "'@cmd", "'=1+1"]
    assert (lines[0]["number"], lines[0]["tags"], lines[0]["state"], lines[0]["cost"]) == ("5", "a b", "queued", "0")
    assert [line["name"] for line in sheet(story.alice, "?q=push&page=7&sort=name")] == [
        "push three",
        "push two",
        "push one",
    ]


def test_a_name_that_is_markup_stays_text_everywhere(story: Story):
    job = make_job(story.alice, name='<img src=x onerror=alert(1)>"')
    for html in (page(story.alice), act(story.alice, [str(job.pk)], "archive").content.decode()):
        assert "<img" not in html
        assert "&lt;img src=x onerror=alert(1)&gt;&quot;" in html


def test_a_lab_without_jobs_is_taught_with_its_own_name(story: Story):
    html = page(story.alice)
    assert "No jobs yet" in html
    assert "# Alice&#x27;s lab: keys are under Settings" in html
    assert "from joynexus_client import Client" in html
    assert "curl" not in page(story.viewer)
    assert "No job matches" in page(story.alice, "?state=failed")


def test_a_lab_whose_jobs_are_all_archived_is_not_told_that_it_has_none(story: Story):
    job = make_job(story.alice)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(state="failed", finished_at=timezone.now(), archived_at=timezone.now())
    html = page(story.alice)
    assert "No jobs yet" not in html
    assert "Every job is archived" in html
    both = page(story.alice, "?archived=all")
    assert names(both) == [job.name]
    assert re.search(r'id="count"[^>]*>1 job<', both)  # the tab counts what is not archived: no part of that


def test_tags_of_the_newest_jobs_are_tabs_the_most_used_first(story: Story):
    first = [make_job(story.alice, tags=["common"]).pk for _ in range(3)]
    make_job(story.alice, tags=["rare"])
    jobs_act(by=None, tenant=story.alice.tenant, job_ids=first[:2], action=BulkAction.TAG, tag="usual")
    tabs = re.findall(
        r'href="/jobs/\?tag=(\w+)"(?: aria-current="page")?>\w+ <span class="u">(\d+)', page(story.alice)
    )
    assert tabs == [("common", "3"), ("usual", "2"), ("rare", "1")]


def test_no_text_breaks_the_address() -> None:
    from django.http import QueryDict

    for text in ("%00", "%ED%A0%80", "x" * 5000, "%F0%9F%A4%96", "'; --"):
        for name in ("q", "tag", "head", "owner", "sort", "page", "col", text):
            asked = asked_of(QueryDict(f"{name}={text}"), projects=set(), owners=set())
            assert asked.page == 1
            asked.query(page=2)
