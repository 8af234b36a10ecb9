"""The frame around every page in Chromium: keys, search, menus, theme, and the badge that says how live a page is."""

import re
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.stack import Stack, sft_spec

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def badge(page: Page):
    return page.locator("[data-live]")


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{page.url} {rule['id']}: {rule['nodes'][0]['html'][:120]}" for rule in found]


def test_everything_is_reached_by_keys(log_in, stack: Stack, alice, finished_job: str, complaints):
    page = log_in(alice)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    first = page.locator("[data-row]").first.get_by_role("link").first
    page.keyboard.press("j")
    expect(first).to_be_focused()
    address = first.get_attribute("href")
    assert address is not None
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{address}")
    page.keyboard.press("n")
    page.wait_for_url("**/jobs/new/")
    assert complaints == []


def test_the_search_answers_while_one_types_and_arrows_go_through_it(
    log_in, stack: Stack, alice, finished_job: str, complaints
):
    page = log_in(alice)
    page.keyboard.press("/")
    field = page.get_by_role("searchbox", name="Search jobs, datasets and policies")
    expect(field).to_be_focused()
    page.keyboard.type("onerror j?")  # keys are text here
    expect(page.get_by_text("Nothing found")).to_be_visible()
    field.fill("onerror")
    hit = page.locator("#found").get_by_role("link", name="<img src=x onerror=alert(1)>").first
    expect(hit).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(hit).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_hidden()
    expect(field).to_be_focused()
    field.fill("")
    field.type("1 cameras")
    expect(page.locator("#found").get_by_role("link", name="1 cameras")).to_be_visible()
    page.locator("main").click(position={"x": 5, "y": 5})
    expect(page.locator("#found")).to_be_hidden()
    field.fill("onerror")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/?q=onerror")
    expect(page.locator("main").get_by_role("link", name="onerror").first).to_be_visible()
    assert complaints == []


def test_menus_open_by_keys_and_close_when_left(log_in, stack: Stack, alice, complaints):
    page = log_in(alice)
    account = page.locator("summary[aria-label^='Account']")
    account.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Sessions")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Sessions")).to_be_hidden()
    expect(account).to_be_focused()
    account.click()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(re.compile("/login/"))
    assert complaints == []


def test_a_cut_of_a_minute_leaves_no_gap_and_says_so(log_in, stack: Stack, alice, version_id: str):
    """The web process is killed and the browser kept from it; a job that came meanwhile is there afterwards, once."""
    page = log_in(alice)
    expect(badge(page)).to_have_text("Live")
    page.context.set_offline(True)
    stack.kill("web")
    expect(badge(page)).to_have_text(re.compile(r"Reconnecting in \d s"), timeout=SLOW_MS)
    cut_s = time.monotonic()
    stack.wait_until_ready()
    job = stack.client(alice).jobs.submit(sft_spec(version_id, name="came meanwhile", steps=20))
    stack.client(alice).jobs.wait(job["id"], timeout_s=120)
    time.sleep(max(0.0, 60 - (time.monotonic() - cut_s)))
    expect(page.get_by_role("link", name="came meanwhile")).to_have_count(0)
    page.context.set_offline(False)
    expect(badge(page)).to_have_text("Live", timeout=15_000)
    expect(page.get_by_role("link", name="came meanwhile")).to_have_count(1, timeout=15_000)
    entry = page.locator(".entry", has=page.get_by_role("link", name="came meanwhile"))
    expect(entry.locator(".pill")).to_contain_text("Succeeded")


def test_a_hidden_page_pauses_and_catches_up(log_in, stack: Stack, alice, version_id: str, complaints):
    page = log_in(alice)
    expect(badge(page)).to_have_text("Live")
    page.evaluate(HIDE, True)
    expect(badge(page)).to_have_text("Paused")
    job = stack.client(alice).jobs.submit(sft_spec(version_id, name="while hidden", steps=20))
    stack.client(alice).jobs.wait(job["id"], timeout_s=120)
    expect(page.get_by_role("link", name="while hidden")).to_have_count(0)
    page.evaluate(HIDE, False)
    expect(badge(page)).to_have_text("Live")
    expect(page.get_by_role("link", name="while hidden")).to_have_count(1)
    assert complaints == []


def test_a_session_that_ended_ends_the_page(log_in, stack: Stack, charlie):
    page = log_in(charlie)
    expect(badge(page)).to_have_text("Live")
    other = page.context.new_page()
    other.goto(stack.url)
    other.locator("summary[aria-label^='Account']").click()
    other.get_by_role("button", name="Log out").click()
    other.wait_for_url(re.compile("/login/"))
    expect(badge(page)).to_have_text("Ended", timeout=15_000)


def test_on_a_phone_the_way_is_at_the_bottom_and_the_rest_in_the_menu(log_in, stack: Stack, alice, complaints):
    page = log_in(alice)
    page.set_viewport_size({"width": 390, "height": 780})
    bar = page.get_by_role("navigation", name="Main")
    box = bar.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] == pytest.approx(780, abs=1)
    for name in ("Home", "Jobs", "Datasets", "Runtime", "Usage"):
        expect(bar.get_by_role("link", name=name)).to_be_visible()
    page.get_by_role("link", name="Search").click()
    page.wait_for_url("**/search/")
    page.locator("summary[aria-label^='Account']").click()
    expect(page.get_by_role("link", name="Policies")).to_be_visible()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 900, 390])
def test_the_frame_is_accessible_with_everything_open(log_in, stack: Stack, alice, finished_job, scheme, width):
    page = log_in(alice)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{stack.url}/search/?q=a")
    page.locator("summary[aria-label^='Account']").click()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?") if page.locator(":focus").count() else page.locator("main").press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    assert violations(page) == []
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
