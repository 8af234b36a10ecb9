"""Several jobs in one chart, in Chromium."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.stack import Stack, sft_spec

pytestmark = pytest.mark.browser

SLOW_MS = 30_000
LINES = """(series) => (document.querySelector(`[data-chart="${series}"]`).data ?? []).filter((trace) => trace.name)
  .map((trace) => ({name: trace.name, color: trace.line.color, x: trace.x, points: trace.x.length}))"""


@pytest.fixture(scope="module")
def pair(stack: Stack, alice: dict[str, str], version_id: str) -> list[str]:
    """Two jobs of different learning rates that have ended; the second's name tries to be markup."""
    client = stack.client(alice)
    specs = [
        sft_spec(version_id, name="slow learner", steps=40) | {"optimizer": {"lr": 1e-4}},
        sft_spec(version_id, name="<b>quick</b> <img src=x onerror=alert(1)>", steps=40) | {"optimizer": {"lr": 1e-3}},
    ]
    jobs = [client.jobs.submit(spec)["id"] for spec in specs]
    for job in jobs:
        assert client.jobs.wait(job, timeout_s=120)["state"] == "succeeded"
    return [str(job) for job in jobs]


def opened(page: Page, stack: Stack, jobs: list[str]) -> Page:
    page.goto(f"{stack.url}/jobs/compare/?" + "&".join(f"job={job}" for job in jobs))
    page.wait_for_function(
        f"""(count) => ({LINES})("train/loss").length >= count""",
        arg=len(jobs),
        timeout=SLOW_MS,
    )
    return page


def test_each_job_has_a_line_of_its_own_colour_and_names_are_text(log_in, stack, alice, pair, complaints):
    page = opened(log_in(alice), stack, pair)
    slow, quick = page.evaluate(LINES, "train/loss")
    assert slow["points"] == quick["points"] == 40
    assert slow["color"] != quick["color"]
    assert "&lt;b>quick&lt;/b>" in quick["name"]
    assert page.locator(".plot img, .plot b").count() == 0
    dot = page.locator(".compare-chips .dot").first
    shown = page.evaluate("(dot) => getComputedStyle(dot).backgroundColor", dot.element_handle())
    assert [int(part) for part in re.findall(r"\d+", shown)] == list(bytes.fromhex(slow["color"].lstrip("#")))
    assert complaints == []


def test_lines_lie_over_steps_time_since_the_start_or_wall_time(log_in, stack, alice, pair):
    page = opened(log_in(alice), stack, pair)
    assert page.evaluate(LINES, "train/loss")[0]["x"][:3] == [1, 2, 3]
    page.get_by_label("x axis").select_option("relative")
    minutes = page.evaluate(LINES, "train/loss")[0]["x"]
    assert 0 <= minutes[0] <= minutes[-1] < 10
    page.get_by_label("x axis").select_option("wall")
    assert re.match(r"\d{4}-\d\d-\d\dT", page.evaluate(LINES, "train/loss")[0]["x"][0])


def test_only_settings_that_differ_are_shown_until_all_are_asked_for(log_in, stack, alice, pair):
    page = opened(log_in(alice), stack, pair)
    settings = page.get_by_role("region", name="Settings")
    expect(settings.get_by_role("cell", name="optimizer.lr")).to_be_visible()
    expect(settings.get_by_role("cell", name="training.steps")).to_be_hidden()
    page.get_by_label("Show equal").check()
    expect(settings.get_by_role("cell", name="training.steps")).to_be_visible()


def test_charts_are_found_by_name_and_jobs_are_taken_out_and_added(log_in, stack, alice, pair):
    page = opened(log_in(alice), stack, pair)
    page.get_by_label("Find a chart").fill("gradient")
    expect(page.locator('[data-chart="train/loss"]')).to_be_hidden()
    expect(page.locator('[data-chart="train/grad_norm"]')).to_be_visible()
    page.get_by_role("link", name="Remove slow learner").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 1 job")
    page.get_by_label("Job to add").select_option(pair[0])
    page.get_by_role("button", name="Add job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 jobs")


def test_another_tenants_job_is_a_missing_page(log_in, stack, charlie, pair):
    page = log_in(charlie)
    answer = page.goto(f"{stack.url}/jobs/compare/?job={pair[0]}")
    assert answer.status == 404


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_is_accessible_and_fits(log_in, stack, alice, pair, theme, width):
    page = log_in(alice)
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, stack, pair)
    assert Axe().run(page).response["violations"] == []
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
