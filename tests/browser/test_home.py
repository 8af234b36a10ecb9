"""The home page in Chromium: a job from the queue to its end without a reload, and how a new lab begins."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.stack import Stack, sft_spec

pytestmark = pytest.mark.browser

SLOW_MS = 60_000


def test_a_job_moves_through_the_page_by_itself(log_in, stack: Stack, alice, version_id: str, complaints):
    page = log_in(alice)
    expect(page.locator("[data-live]")).to_have_text("Live")
    page.evaluate("() => { window.sameDocument = true; }")
    client = stack.client(alice)
    job = client.jobs.submit(sft_spec(version_id, name="watched <b>job</b>", steps=3000))
    run = page.locator(".run", has=page.get_by_role("link", name="watched <b>job</b>"))
    expect(run).to_be_visible(timeout=SLOW_MS)
    expect(run.locator(".spark path")).to_have_attribute("d", re.compile("^M.*L"), timeout=SLOW_MS)
    expect(run.get_by_text("loss, smoothed")).to_be_visible()
    expect(run.get_by_text(re.compile(r"\d of 3,000 steps"))).to_be_visible()
    first = run.locator("progress").get_attribute("value")
    page.wait_for_function(
        "(value) => Number(document.querySelector('.run progress')?.value) > Number(value)", arg=first, timeout=SLOW_MS
    )
    expect(page.locator("#live-jobs")).to_contain_text("1", timeout=SLOW_MS)
    client.jobs.cancel(job["id"])
    ended = page.locator(".entry.ended", has=page.get_by_role("link", name="watched <b>job</b>"))
    expect(ended.locator(".pill")).to_contain_text("Cancelled", timeout=SLOW_MS)
    assert page.evaluate("() => window.sameDocument")
    assert complaints == []


def test_the_focus_stays_on_a_line_that_is_renewed(log_in, stack: Stack, alice, version_id: str):
    page = log_in(alice)
    client = stack.client(alice)
    job = client.jobs.submit(sft_spec(version_id, name="focused", steps=3000))
    link = page.get_by_role("link", name="focused")
    expect(page.locator(".run", has=link).locator("progress")).to_be_visible(timeout=SLOW_MS)
    link.focus()
    before = page.locator(".run progress").first.get_attribute("value")
    page.wait_for_function(
        "(value) => document.querySelector('.run progress')?.getAttribute('value') !== value",
        arg=before,
        timeout=SLOW_MS,
    )
    expect(link).to_be_focused()
    client.jobs.cancel(job["id"])


def test_a_new_lab_is_taught_and_can_copy_what_to_type(log_in, stack: Stack, charlie, complaints):
    page = log_in(charlie)
    expect(page.get_by_role("heading", name="Three steps to a first policy")).to_be_visible()
    snippet = page.locator("#shell-curl pre")
    expect(snippet).to_contain_text("Charlie lab")
    expect(snippet).to_contain_text(f"{stack.url}/api/v1/jobs")
    page.get_by_role("button", name="Python").click()
    expect(page.locator("#shell-python pre")).to_be_visible()
    expect(snippet).to_be_hidden()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#shell-python").get_by_role("button", name="Copy").click()
    expect(page.locator(".toast")).to_have_text("Copied")
    assert "from joynexus_client import Client" in page.evaluate("() => navigator.clipboard.readText()")
    expect(page.locator(".toast")).to_have_count(0, timeout=6000)
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("who", ["alice", "charlie"])
def test_home_is_accessible_and_fits_the_screen(
    log_in, stack: Stack, request: pytest.FixtureRequest, finished_job, scheme, width, who
):
    page = log_in(request.getfixturevalue(who))
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    page.reload()
    page.wait_for_load_state("networkidle")
    found = Axe().run(page).response["violations"]
    assert [f"{rule['id']}: {rule['nodes'][0]['html'][:120]}" for rule in found] == []
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
