"""A job's log over REST: pages in both directions, search, levels, and the whole of it as text."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from jobs.models import Job
from jobs.services.cancel import job_cancel
from jobs.services.transition import job_log
from tenants.scope import platform_scope
from tests.support.jobs import make_job
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

LEVELS = ("info", "warning", "error")


def talkative(person: Person, lines: int = 9) -> Job:
    """A queued job that has said ``lines`` lines of levels in turn: numbers 2 to ``lines`` + 1 of its stream."""
    job = make_job(person)
    for number in range(1, lines + 1):
        job_log(job, level=LEVELS[(number - 1) % 3], message=f"line {number} of the Gripper")
    return job


def logs(person: Person, job: Job, query: str = "") -> Any:
    answer = person.api.get(f"/api/v1/jobs/{job.pk}/logs{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def text_of(answer: Any) -> str:
    """The body of a streamed answer."""

    async def body() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(body)().decode()


def test_the_newest_lines_come_in_order_and_older_ones_by_going_back(story: Story):
    job = talkative(story.alice)
    page = logs(story.viewer, job, "?limit=4")
    assert [line["seq"] for line in page["lines"]] == [7, 8, 9, 10]
    assert (page["seq"], page["older"], page["newer"]) == (10, True, False)
    page = logs(story.viewer, job, "?limit=4&before=7")
    assert [line["seq"] for line in page["lines"]] == [3, 4, 5, 6]
    assert page["older"] is True
    page = logs(story.viewer, job, "?limit=4&before=3")
    assert [(line["seq"], line["level"]) for line in page["lines"]] == [(1, "state"), (2, "info")]
    assert page["older"] is False
    assert page["lines"][0]["state"] == "queued"


def test_going_forward_from_a_number_tells_every_later_line_once(story: Story):
    job = talkative(story.alice)
    told, after, newer = [], 0, True
    while newer:
        page = logs(story.bob, job, f"?limit=3&after={after}")
        told += [line["seq"] for line in page["lines"]]
        after, newer = page["seq"], page["newer"]
    assert told == list(range(1, 11))
    assert logs(story.bob, job, f"?after={after}")["lines"] == []
    job_log(job, level="info", message="one more")
    assert [line["message"] for line in logs(story.bob, job, f"?after={after}")["lines"]] == ["one more"]


def test_a_level_means_that_or_graver_and_leaves_out_changes_of_state(story: Story):
    job = talkative(story.alice)
    assert {line["level"] for line in logs(story.alice, job, "?level=info")["lines"]} == set(LEVELS)
    assert {line["level"] for line in logs(story.alice, job, "?level=warning")["lines"]} == {"warning", "error"}
    assert {line["level"] for line in logs(story.alice, job, "?level=error")["lines"]} == {"error"}
    assert logs(story.alice, job)["lines"][0]["level"] == "state"


def test_a_search_finds_parts_of_the_text_in_any_case(story: Story):
    job = talkative(story.alice)
    found = logs(story.alice, job, "?q=LINE 7 of the gripper")["lines"]
    assert [line["message"] for line in found] == ["line 7 of the Gripper"]
    assert logs(story.alice, job, "?q=%25")["lines"] == []  # a percent sign is itself


def test_lines_of_one_attempt_are_told_alone(story: Story):
    job = talkative(story.alice, lines=2)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(attempt=1)
        job.refresh_from_db()
    job_log(job, level="info", message="of the first attempt")
    assert [line["message"] for line in logs(story.alice, job, "?attempt=1")["lines"]] == ["of the first attempt"]


def test_the_whole_log_is_one_text(story: Story):
    job = talkative(story.alice, lines=3)
    job_log(job, level="error", message="two\nlines")
    answer = story.viewer.api.get(f"/api/v1/jobs/{job.pk}/logs", headers={"Accept": "text/plain"})
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert f'filename="log-{job.pk}.txt"' in answer["Content-Disposition"]
    text = text_of(answer)
    assert text.count("attempt 0") == 5
    assert "  state    attempt 0  queued\n" in text
    assert text.endswith("  error    attempt 0  two\n    lines\n")
    only = text_of(story.viewer.api.get(f"/api/v1/jobs/{job.pk}/logs?format=text&level=warning"))
    assert "line 2" in only
    assert "line 1" not in only


@pytest.mark.parametrize(
    "query", ["after=1&before=2", "limit=0", "limit=2001", "level=debug", "after=-1", "colour=red", "q=a&q=b"]
)
def test_a_query_that_cannot_be_meant_is_refused(story: Story, query: str):
    job = make_job(story.alice)
    answer = story.alice.api.get(f"/api/v1/jobs/{job.pk}/logs?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_a_log_of_another_tenant_is_missing_as_text_too(story: Story):
    job = talkative(story.alice)
    for query in ("", "?format=text"):
        assert story.charlie.api.get(f"/api/v1/jobs/{job.pk}/logs{query}").status_code == 404


def test_the_end_of_a_job_is_a_line_with_its_reason(story: Story):
    job = make_job(story.alice)
    job_cancel(tenant=story.alice.tenant, job_id=job.pk, by=story.alice.actor)
    last = logs(story.alice, job)["lines"][-1]
    assert (last["state"], last["message"]) == ("cancelled", "cancelled_by_user")


def test_reading_a_page_takes_the_same_number_of_queries_however_long_the_log_is(
    story: Story, django_assert_max_num_queries
):
    job = talkative(story.alice, lines=40)
    api = story.alice.api
    with django_assert_max_num_queries(6):
        assert api.get(f"/api/v1/jobs/{job.pk}/logs?limit=30").status_code == 200
