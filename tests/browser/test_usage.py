"""Usage and budgets in Chromium: figures in both themes, drilling down, a budget's life, files, phone, axe."""

import csv
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.stack import Stack, sft_spec

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
BAR = "#plot-day .barlayer path"
PAGES = ("/usage/", "/billing/budgets/", "/billing/credit/", "/billing/prices/", "/billing/invoices/")


def fill(page: Page) -> str:
    """The colour of the first bar that is drawn."""
    page.wait_for_selector(BAR, timeout=SLOW_MS, state="attached")
    return str(page.evaluate("(bar) => getComputedStyle(document.querySelector(bar)).fill", BAR))


@pytest.fixture
def usage(log_in, stack: Stack, alice, finished_job: str) -> Page:
    page = log_in(alice)
    page.goto(f"{stack.url}/usage/")
    return page


def test_the_month_is_drawn_in_both_themes_and_again_when_the_theme_changes(usage: Page, complaints) -> None:
    light = fill(usage)
    assert light == "rgb(15, 92, 115)"
    usage.get_by_role("button", name=re.compile("Theme")).click()
    usage.get_by_role("button", name="Theme: light").click()
    usage.wait_for_function(
        "([bar, old]) => getComputedStyle(document.querySelector(bar)).fill !== old", arg=[BAR, light], timeout=SLOW_MS
    )
    assert fill(usage) == "rgb(79, 176, 206)"
    assert complaints == []


def test_a_row_leads_to_the_jobs_behind_it_and_on_to_the_job(usage: Page, finished_job: str, complaints) -> None:
    usage.get_by_role("link", name="Training samples").click()
    usage.wait_for_url(re.compile("by=job"))
    expect(usage.locator(".chip")).to_contain_text("Meter: Training samples")
    link = usage.locator(f'#table tbody a[href="/jobs/{finished_job}/"]')
    expect(link).to_have_text("<img src=x onerror=alert(1)>")
    usage.get_by_label("Without this meter").click()
    usage.wait_for_function("() => !location.search.includes('meter=')")
    link.click()
    usage.wait_for_url(re.compile(f"/jobs/{finished_job}/"))
    assert complaints == []


def test_the_table_comes_as_a_file(usage: Page, tmp_path: Path) -> None:
    usage.get_by_role("link", name="Job", exact=True).last.click()
    usage.wait_for_url(re.compile("by=job"))
    with usage.expect_download() as started:
        usage.get_by_role("link", name="Export CSV").click()
    started.value.save_as(tmp_path / "usage.csv")
    rows = list(csv.DictReader((tmp_path / "usage.csv").open()))
    assert {row["meter"] for row in rows} >= {"train.samples", "train.compute_us"}
    assert all(float(row["cost"]) >= 0 for row in rows)


def test_what_is_used_appears_by_itself_and_keeps_the_zoom(usage: Page, stack: Stack, alice, version_id, complaints):
    fill(usage)
    usage.evaluate(
        """() => { window.sameDocument = true; window.plot = document.querySelector('#plot-day');
        return Plotly.relayout(window.plot, {'yaxis.range': [0, 0.00123]}); }"""
    )
    before = usage.locator("#table tfoot .num").last.inner_text()
    client = stack.client(alice)
    job = client.jobs.submit(sft_spec(version_id, name="more", steps=60))
    client.jobs.wait(job["id"], timeout_s=120)
    expect(usage.locator("#table tfoot .num").last).not_to_have_text(before, timeout=SLOW_MS)
    assert usage.evaluate("() => window.sameDocument && window.plot === document.querySelector('#plot-day')")
    assert usage.evaluate("() => window.plot.layout.yaxis.range") == [0, 0.00123]
    assert complaints == []


def test_a_budget_is_set_refused_changed_and_ended(usage: Page, stack: Stack, complaints) -> None:
    usage.get_by_role("link", name="Budgets and limits").click()
    usage.get_by_label("Amount a month").fill("0.001")
    usage.get_by_role("button", name="Set budget").click()
    expect(usage.locator(".field .err")).to_contain_text("whole minor units")
    assert usage.get_by_label("Amount a month").input_value() == "0.001"
    usage.get_by_label("Amount a month").fill("500")
    usage.get_by_role("button", name="Set budget").click()
    row = usage.locator(".budget-row")
    expect(row).to_contain_text("€500.00")
    row.get_by_text("Change or end").click()
    row.get_by_label("Amount a month").fill("750")
    row.get_by_text("Stop at 100").click()
    row.get_by_role("button", name="Change budget").click()
    expect(usage.locator(".budget-row")).to_contain_text("€750.00")
    expect(usage.locator(".budget-row")).to_contain_text("hard")
    usage.goto(f"{stack.url}/usage/")
    expect(usage.locator(".cap")).to_be_visible()
    expect(usage.get_by_text("a day keeps the budget")).to_be_visible(timeout=SLOW_MS)
    usage.goto(f"{stack.url}/billing/budgets/")
    usage.locator(".budget-row").get_by_text("Change or end").click()
    usage.get_by_role("button", name="End budget").click()
    expect(usage.get_by_role("heading", name="No budget yet")).to_be_visible()
    known = "the server responded with a status of 422"
    assert [text for text in complaints if known not in text] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_pages_are_accessible_and_fit_the_screen(usage: Page, stack: Stack, scheme: str, width: int) -> None:
    usage.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    usage.set_viewport_size({"width": width, "height": 844})
    for path in PAGES:
        usage.goto(f"{stack.url}{path}")
        expect(usage.get_by_role("navigation", name="Usage and billing")).to_be_visible()
        found = Axe().run(usage).response["violations"]
        assert [f"{path} {v['id']}: {v['nodes'][0]['html'][:120]}" for v in found] == []
        assert usage.evaluate("() => document.documentElement.scrollWidth") <= width
