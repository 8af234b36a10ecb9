"""The runtime page in Chromium: drawn in both themes, renewed without flicker, nobody else on it."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.stack import Stack, sft_spec

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
TOPS = """() => ["features", "pictures"].map(
    (name) => document.querySelector(`[data-${name}]`).getBoundingClientRect().top)"""
LINE = "#plot-busy .scatterlayer .js-line"


def stroke(page: Page) -> str:
    page.wait_for_selector(LINE, timeout=SLOW_MS, state="attached")
    return str(page.evaluate("(line) => getComputedStyle(document.querySelector(line)).stroke", LINE))


@pytest.fixture
def runtime(log_in, stack: Stack, charlie, finished_job: str) -> Page:
    page = log_in(charlie)
    page.goto(f"{stack.url}/runtime/")
    return page


def test_it_is_drawn_in_both_themes_and_again_when_the_theme_changes(runtime: Page, complaints) -> None:
    light = stroke(runtime)
    assert light == "rgb(15, 92, 115)"
    runtime.get_by_role("button", name=re.compile("Theme")).click()
    runtime.get_by_role("button", name="Theme: light").click()
    runtime.wait_for_function(
        "([line, old]) => getComputedStyle(document.querySelector(line)).stroke !== old",
        arg=[LINE, light],
        timeout=SLOW_MS,
    )
    assert stroke(runtime) == "rgb(79, 176, 206)"
    assert complaints == []


def test_it_is_renewed_in_place_while_others_work_and_names_nobody(
    runtime: Page, stack: Stack, alice, version_id: str, complaints
) -> None:
    stroke(runtime)
    runtime.evaluate("() => { window.plot = document.querySelector('#plot-busy'); window.plot.mark = 1; }")
    client = stack.client(alice)
    job = client.jobs.submit(sft_spec(version_id, name="secret plan of Alice", steps=3000))
    busy = "() => Math.max(...window.plot.data[0].y.slice(-4)) > 0"
    runtime.wait_for_function(busy, timeout=SLOW_MS)
    assert runtime.evaluate("() => document.querySelector('#plot-busy') === window.plot && window.plot.mark === 1")
    expect(runtime.get_by_text("None of your jobs is at work")).to_be_visible()
    own = runtime.evaluate("() => JSON.parse(document.querySelector('#fig-own').textContent).data.map((d) => d.y)")
    assert max(max(line[-4:]) for line in own) == 0
    content = runtime.content()
    assert "secret plan" not in content
    assert "Alice" not in content
    client.jobs.cancel(job["id"])
    assert complaints == []


@pytest.mark.parametrize("width", [1440, 390])
def test_what_is_kept_of_frames_and_of_pictures_stands_side_by_side_where_there_is_room(
    runtime: Page, width: int, complaints
) -> None:
    runtime.set_viewport_size({"width": width, "height": 844})
    features, pictures = runtime.locator("[data-features]"), runtime.locator("[data-pictures]")
    for _ in range(20):  # the newest account of the runtime is some seconds old
        if "none looked up" not in features.inner_text():
            break
        runtime.wait_for_timeout(1000)
        runtime.reload()
    expect(features).to_contain_text(re.compile(r"Frames found\s*[1-9]\d?\.\d"))
    expect(pictures).to_contain_text(re.compile(r"Known from before\s*none shown"))  # nothing was played
    left, right = runtime.evaluate(TOPS)
    assert (left == right) is (width == 1440)
    assert complaints == []


def test_the_share_of_found_features_is_drawn_on_a_jobs_page(
    log_in, stack: Stack, alice, finished_job: str, complaints
) -> None:
    page = log_in(alice)
    page.goto(f"{stack.url}/jobs/{finished_job}/?tab=charts")
    drawn = "() => document.querySelector('[data-chart=\"hits\"]').data?.[0].y.length > 1"
    page.locator('[data-chart="hits"]').scroll_into_view_if_needed()
    page.wait_for_function(drawn, timeout=SLOW_MS)
    shares = page.evaluate("() => [...document.querySelector('[data-chart=\"hits\"]').data[0].y]")
    assert all(0 <= share <= 1 for share in shares)
    assert shares[-1] == 1, "its last epoch finds everything"
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_is_accessible_and_fits_the_screen(runtime: Page, scheme: str, width: int) -> None:
    runtime.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    runtime.set_viewport_size({"width": width, "height": 844})
    runtime.reload()
    stroke(runtime)
    found = Axe().run(runtime).response["violations"]
    assert [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found] == []
    assert runtime.evaluate("() => document.documentElement.scrollWidth") <= width
