"""The pages as Django sends them: who may see what, and how figures are written."""

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend.templatetags.console import duration, money
from jobs.models import DeviceSpan, RuntimeSnapshot
from jobs.selectors.utilization import utilization_history
from tenants.billing.usage.selectors import Cost
from tests.support.jobs import make_job, reread
from tests.support.story import Story

pytestmark = pytest.mark.django_db

PAGES = ("/jobs/", "/runtime/")


@pytest.mark.parametrize("path", PAGES)
def test_a_visitor_is_asked_to_log_in(client, path):
    answer = client.get(path)
    assert answer.status_code == 302
    assert answer["Location"] == f"/login/?next={path}"


@pytest.mark.parametrize("path", PAGES)
def test_every_member_but_the_bookkeeper_sees_every_page(story: Story, path):
    for person in (story.alice, story.bob, story.viewer):
        assert person.browser().get(path).status_code == 200


def test_a_job_is_a_page_to_its_tenant_and_missing_to_others(story: Story):
    job = make_job(story.alice, name="secret plan")
    for person in (story.alice, story.bob, story.viewer):
        assert b"secret plan" in person.browser().get(f"/jobs/{job.pk}/").content
    foreign = story.charlie.browser().get(f"/jobs/{job.pk}/")
    missing = story.charlie.browser().get(f"/jobs/{uuid.uuid4()}/")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content
    assert b"secret plan" not in story.charlie.browser().get("/jobs/").content


def test_a_viewer_is_shown_no_cancel_button_and_refused_if_she_posts(story: Story):
    job = make_job(story.alice)
    assert b"Cancel job" in story.bob.browser().get(f"/jobs/{job.pk}/").content
    assert b"Cancel job" not in story.viewer.browser().get(f"/jobs/{job.pk}/").content
    assert story.viewer.browser().post(f"/jobs/{job.pk}/cancel/").status_code == 403
    assert reread(job).state == "queued"


def test_cancelling_needs_a_post_of_ones_own_tenant(story: Story):
    job = make_job(story.alice)
    assert story.alice.browser().get(f"/jobs/{job.pk}/cancel/").status_code == 405
    assert story.charlie.browser().post(f"/jobs/{job.pk}/cancel/").status_code == 404
    assert reread(job).state == "queued"
    assert story.bob.browser().post(f"/jobs/{job.pk}/cancel/").status_code == 302
    assert reread(job).state == "cancelled"


@pytest.mark.parametrize("query", ["q=%00", "q=%ED%A0%80", "page=" + "9" * 30, "page=last", "state=nonsense"])
def test_no_query_string_breaks_the_list(story: Story, query: str):
    make_job(story.alice)
    assert story.alice.browser().get(f"/jobs/?{query}").status_code == 200


def test_the_list_filters_by_state_and_name(story: Story):
    make_job(story.alice, name="push the cube")
    make_job(story.alice, name="lift the peg")
    browser = story.alice.browser()
    found = browser.get("/jobs/?q=peg&state=live").content
    assert b"lift the peg" in found
    assert b"push the cube" not in found
    assert b"No job matches" in browser.get("/jobs/?state=failed").content


def test_the_list_asks_the_database_the_same_number_of_times_however_long_it_is(story: Story):
    browser, asked = story.alice.browser(), []
    for count in (1, 11):
        for number in range(count):
            make_job(story.alice, name=f"job {number}")
        browser.get("/jobs/")  # what is remembered for a while is read
        with CaptureQueriesContext(connection) as seen:
            assert browser.get("/jobs/").status_code == 200
        asked.append(len(seen))
    assert asked[0] == asked[1]


def test_utilization_adds_up_everybody_and_tells_ones_own_part(story: Story):
    now = timezone.now() - timedelta(seconds=60)
    for index, size in enumerate((1, 2, 2)):
        DeviceSpan.objects.create(
            journal_id="j",
            span_id=str(index),
            service="training",
            started_at=now,
            busy_us=3_000_000,
            overhead_us=0,
            group_size=size,
            samples=1,
            tokens=1,
            shares={str(story.alice.tenant.pk): 1_000_000, str(story.charlie.tenant.pk): 2_000_000},
        )
    history = utilization_history(story.alice.tenant)
    assert sum(history.busy) == pytest.approx(9 / 15)
    assert sum(history.own) == pytest.approx(3 / 15)
    assert history.group_sizes == {1: 1, 2: 2}
    assert str(story.charlie.tenant.pk) not in story.alice.browser().get("/runtime/").content.decode()


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "€0.00"), ("0.000012", "< €0.0001"), ("0.0042", "€0.0042"), ("1234.5", "€1,234.50"), ("0.995", "€1.00")],
)
def test_money_is_written_so_that_little_is_not_nothing(amount, text):
    assert money(Cost(amount=Decimal(amount), currency="EUR", lines=())) == text


def test_durations_are_written_in_two_units():
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    assert duration(begin, begin + timedelta(seconds=41)) == "41\u00a0s"
    assert duration(begin, begin + timedelta(minutes=9, seconds=5)) == "9\u00a0min 05\u00a0s"
    assert duration(begin, begin + timedelta(hours=2, minutes=51)) == "2\u00a0h 51\u00a0min"
    assert duration(None, begin) == "–"


@pytest.mark.parametrize(("accepting", "said"), [(True, False), (False, True)])
def test_a_live_job_says_when_the_runtime_takes_no_work(story: Story, accepting, said):
    status = {"journal_id": "j", "last_seq": 0, "accepting": accepting, "reason": None if accepting else "disk_full"}
    status |= {"bases": [], "services": [], "active_jobs": 1, "partition_bytes": 0}
    RuntimeSnapshot.objects.create(journal_id="j", status=status, seen_at=timezone.now())
    job = make_job(story.alice)
    shown = story.alice.browser().get(f"/jobs/{job.pk}/").content
    assert (b"disk_full" in shown) == said


def test_a_job_says_when_the_runtime_has_not_been_seen_for_long(story: Story):
    status = {"journal_id": "j", "last_seq": 0, "accepting": True, "reason": None}
    status |= {"bases": [], "services": [], "active_jobs": 1, "partition_bytes": 0}
    seen_at = timezone.now() - timedelta(minutes=5)
    RuntimeSnapshot.objects.create(journal_id="j", status=status, seen_at=seen_at)
    job = make_job(story.alice)
    assert b"not reachable" in story.alice.browser().get(f"/jobs/{job.pk}/").content
