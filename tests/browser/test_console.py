"""The console in Chromium: log-in, list, a live job, the runtime page."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.stack import Stack, sft_spec

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
DATA = """(id) => document.querySelector(`[data-chart="${id}"]`).data?.at(-1)?.x?.length ?? 0"""
TOLD = """(id) => [document.querySelector(`[data-chart="${id}"]`).data.at(-1).x,
    document.querySelector(`[data-count="${id}"]`).textContent]"""
XRANGE = """(id) => document.querySelector(`[data-chart="${id}"]`).layout.xaxis.range"""


def points(page: Page, chart: str) -> int:
    return page.evaluate(DATA, chart)


def wait_for_points(page: Page, chart: str, count: int) -> None:
    page.wait_for_function(
        """([id, count]) => (document.querySelector(`[data-chart="${id}"]`).data?.at(-1)?.x?.length ?? 0) >= count""",
        arg=[chart, count],
        timeout=SLOW_MS,
    )


def test_a_wrong_password_is_refused_in_words(page, stack, alice, complaints):
    page.goto(stack.url)
    page.get_by_label("E-mail").fill(alice["email"])
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not match")


def test_the_list_shows_own_jobs_and_a_markup_name_as_text(log_in, stack, alice, finished_job, complaints):
    page = log_in(alice)
    page.goto(f"{stack.url}/jobs/")
    expect(page.get_by_role("link", name="<img src=x onerror=alert(1)>", exact=True)).to_be_visible()
    expect(page.locator(".pill.succeeded").first).to_contain_text("Succeeded")
    assert complaints == []


def test_a_tenant_without_jobs_is_taught_by_a_snippet(log_in, stack, charlie):
    page = log_in(charlie)
    page.goto(f"{stack.url}/jobs/")
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    expect(page.locator("main pre").first).to_be_visible()


def test_points_arrive_live_while_zoom_stays_and_a_cut_leaves_no_gap(
    log_in, stack: Stack, alice, version_id, complaints
):
    client = stack.client(alice)
    job = client.jobs.submit(sft_spec(version_id, name="live", steps=5000))
    page = log_in(alice)
    page.goto(f"{stack.url}/jobs/{job['id']}/")
    wait_for_points(page, "loss", 10)
    box = page.locator('[data-chart="loss"] .nsewdrag').bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.5, steps=4)
    page.mouse.up()
    zoomed = page.evaluate(XRANGE, "loss")
    seen = points(page, "loss")
    stack.kill("web")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "reconnecting", timeout=SLOW_MS)
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live", timeout=SLOW_MS)
    wait_for_points(page, "loss", seen + 20)
    assert page.evaluate(XRANGE, "loss") == zoomed
    steps, told_of = page.evaluate(TOLD, "loss")
    assert steps == sorted(set(steps))
    (count,) = re.findall(r"([\d,]+) points", told_of)
    assert int(count.replace(",", "")) == steps[-1]  # each step once, and none is missing
    told = page.locator("[data-lines] dt").all_inner_texts()  # none of them was there when the page came
    assert [text.split(",")[0] for text in told] == [
        *("Device time", "Training samples", "Still reserved for it", "Share of device time")
    ]
    page.locator('[data-chart="loss"] .nsewdrag').dblclick()
    page.wait_for_function(
        f"() => document.querySelector('[data-chart=\"loss\"]').layout.xaxis.range[1] > {zoomed[1]}"
    )
    client.jobs.cancel(job["id"])
    expect(page.locator(".pill.cancelled").first).to_be_visible(timeout=SLOW_MS)
    stack.wait_until_ready()


def test_the_runtime_page_shows_each_service_and_names_nobody(log_in, stack, charlie, finished_job, complaints):
    page = log_in(charlie)
    page.goto(f"{stack.url}/runtime/")
    expect(page.locator('[data-service="training"] [data-f=busy]')).to_have_text(re.compile(r"\d"), timeout=SLOW_MS)
    expect(page.get_by_text("random weights").first).to_be_visible()
    assert "Alice" not in page.content()
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_are_accessible_and_fit_the_screen(log_in, stack, alice, finished_job, scheme, width):
    page = log_in(alice)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    for path in ("/jobs/", f"/jobs/{finished_job}/", "/runtime/"):
        page.goto(f"{stack.url}{path}")
        page.wait_for_load_state("networkidle")
        found = Axe().run(page).response["violations"]
        assert [f"{path} {v['id']}: {v['nodes'][0]['html'][:120]}" for v in found] == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_the_theme_toggle_is_remembered(log_in, alice, stack):
    page = log_in(alice)
    page.get_by_role("button", name=re.compile("Theme")).click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    page.goto(f"{stack.url}/runtime/")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
