"""A job's log in Chromium: live through a cut, read back, searched, followed."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.watched import Line, open_job, running_job, say, seqs
from tests.support.stack import sft_spec

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
CUT_MS = 60_000


@pytest.fixture(scope="module")
def talkative_job(stack, alice, version_id) -> str:
    """An ended job with a log of 1,300 lines."""
    client = stack.client(alice)
    job = client.jobs.submit(sft_spec(version_id, name="talkative", steps=5))
    client.jobs.wait(job["id"], timeout_s=120)
    say(stack, job["id"], 1, 1300)
    return str(job["id"])


def test_after_a_cut_of_a_minute_nothing_is_missing_and_nothing_is_twice(log_in, stack, alice, version_id, complaints):
    job = running_job(stack, alice, version_id, "cut for a minute")
    page = log_in(alice)
    line = Line(page)
    open_job(page, stack, job, "logs")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live", timeout=SLOW_MS)
    say(stack, job, 1, 3)
    expect(page.locator("[data-log-lines]").get_by_text("line 3 of the gripper")).to_be_visible(timeout=SLOW_MS)
    line.cut()
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "reconnecting")
    say(stack, job, 4, 30)
    page.wait_for_timeout(CUT_MS)
    expect(page.locator("[data-live]")).to_contain_text("Reconnecting in")
    assert page.locator("[data-log-lines] .tx", has_text="of the gripper").count() == 3
    line.mend()
    say(stack, job, 31, 33)
    expect(page.locator("[data-log-lines] .tx", has_text="of the gripper")).to_have_count(33, timeout=SLOW_MS)
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    told = page.locator("[data-log-lines] .tx", has_text="of the gripper").all_inner_texts()
    assert told == [f"line {number} of the gripper" for number in range(1, 34)]
    shown = seqs(page, "[data-log-lines] li")
    stack.client(alice).jobs.cancel(job)
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "ended", timeout=SLOW_MS)
    assert seqs(page, "[data-log-lines] li")[: len(shown)] == sorted(set(shown))
    events = seqs(page, "[data-events] li[data-seq]")
    assert events == sorted(set(events), reverse=True)
    assert complaints == []


def test_a_log_is_read_back_searched_filtered_and_saved(log_in, stack, alice, talkative_job, complaints, tmp_path):
    page = open_job(log_in(alice), stack, talkative_job, "logs")
    lines = page.locator("[data-log-lines] li")
    expect(lines).to_have_count(500)
    expect(lines.last).to_contain_text("line 1300 of the gripper")
    expect(lines.last).to_be_in_viewport()
    page.get_by_role("button", name="Load older lines").click()
    expect(lines).to_have_count(1000)
    page.get_by_role("button", name="Load older lines").click()
    expect(page.locator(".log-line.of-state").first).to_contain_text("Queued")
    expect(page.get_by_role("button", name="Load older lines")).to_be_hidden()
    numbers = seqs(page, "[data-log-lines] li")
    assert numbers == sorted(set(numbers))
    assert len(page.locator("[data-log-lines] .tx", has_text="of the gripper").all()) == 1300
    page.get_by_role("searchbox", name="Search in the log").fill("LINE 77 of")
    page.get_by_role("searchbox", name="Search in the log").press("Enter")
    expect(lines).to_have_count(1)
    expect(page.locator("[data-log-lines] mark")).to_have_text("line 77 of")
    expect(page).to_have_url(re.compile(r"q=LINE"))
    page.get_by_role("searchbox", name="Search in the log").fill("")
    page.get_by_label("Level").select_option("error")
    expect(lines.first).to_contain_text("error")
    assert page.locator(".log-line:not(.of-error)").count() == 0
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download", exact=True).click()
    waiting.value.save_as(tmp_path / "log.txt")
    saved = (tmp_path / "log.txt").read_text().splitlines()
    assert len(saved) == sum(number % 3 == 2 for number in range(1, 1301))
    assert complaints == []


def test_following_pauses_when_one_scrolls_up(log_in, stack, alice, version_id):
    job = running_job(stack, alice, version_id, "follow")
    say(stack, job, 1, 120)
    page = open_job(log_in(alice), stack, job, "logs")
    follow, view = page.get_by_role("checkbox", name="Follow"), page.locator("[data-log-view]")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live", timeout=SLOW_MS)
    expect(page.locator("[data-log-lines]").get_by_text("line 120 of the gripper")).to_be_in_viewport()
    view.hover()
    page.mouse.wheel(0, -600)
    expect(follow).not_to_be_checked()
    top = view.evaluate("(view) => view.scrollTop")
    say(stack, job, 121, 124)
    button = page.get_by_role("button", name="4 new lines")
    expect(button).to_be_visible(timeout=SLOW_MS)
    assert view.evaluate("(view) => view.scrollTop") == top
    button.click()
    expect(page.locator("[data-log-lines]").get_by_text("line 124 of the gripper")).to_be_in_viewport()
    expect(follow).to_be_checked()
    say(stack, job, 125, 125)
    expect(page.locator("[data-log-lines]").get_by_text("line 125 of the gripper")).to_be_in_viewport(timeout=SLOW_MS)
    stack.client(alice).jobs.cancel(job)
