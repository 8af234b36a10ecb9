"""Charts of a job in a real browser: a million points, zoom under live points, gaps, hidden lines, any series."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from gpu_runtime.protocol.messages import MetricsRecorded
from tests.browser.played import Key, Played, played_platform, wait_for
from tests.support.many_points import SPIKE

pytestmark = pytest.mark.browser

STEPS, SPIKE_AT = 100_000, 71_234  # of each of ten series
SEED = f'from tests.support.many_points import seed; seed("%s", steps={STEPS}, spike_at={SPIKE_AT})'
PLOT = """(id) => { const plot = document.querySelector(`[data-chart="${CSS.escape(id)}"]`);
return {x: plot.layout?.xaxis.range, auto: plot.layout?.xaxis.autorange, type: plot.layout?.xaxis.type,
    high: plot.layout?.yaxis.range?.[1],
    lines: (plot.data ?? []).map((d) => ({name: d.name ?? null, mode: d.mode, x: d.x, y: d.y, text: d.text}))}; }"""
DRAWN = """() => [...document.querySelectorAll("[data-chart]")].filter((plot) => plot.data).length"""
NEWEST = """([id, step]) => document.querySelector(`[data-chart="${id}"]`).data?.some((d) => d.x.at(-1) === step)"""
SLOW_MS = 60_000


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played_platform(tmp_path_factory.mktemp("charts")) as platform:
        yield platform


@pytest.fixture(scope="module")
def million(played: Played) -> Key:
    """A running job that told ten series of 100,000 points; one loss among them is a spike."""
    key = played.start(played.sft_spec("a million points", steps=200_000))
    played.stack.manage("shell", "-c", SEED % key[0])
    return key


@pytest.fixture
def short(played: Played) -> Key:
    return played.start(played.sft_spec("short", steps=1000))


@pytest.fixture
def visit(log_in_at, played: Played):
    """Open the charts of one of Dora's jobs."""

    def go(key: Key) -> Page:
        page = log_in_at(played.stack, played.lab)
        page.goto(charts_url(played, key))
        return page

    return go


def charts_url(played: Played, key: Key) -> str:
    return f"{played.stack.url}/jobs/{key[0]}/?tab=charts"


def tell(played: Played, key: Key, step: int, **values: float) -> None:
    named = {name.replace("_", "/", 1): value for name, value in values.items()}
    played.runtime.tell(*key, MetricsRecorded(step=step, values=named))


def plot(page: Page, chart: str) -> dict[str, Any]:
    return page.evaluate(PLOT, chart)


def line(page: Page, chart: str, name: str) -> dict[str, Any] | None:
    return next((trace for trace in plot(page, chart)["lines"] if trace["name"] == name), None)


def wait_for_step(page: Page, chart: str, step: int) -> None:
    page.wait_for_function(NEWEST, arg=[chart, step], timeout=SLOW_MS)


def drag(page: Page, chart: str, start: float, end: float) -> None:
    """Zoom into a part of the axis, in fractions of it."""
    box = page.locator(f'[data-chart="{chart}"] .nsewdrag').bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * start, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()


def test_one_spike_among_a_million_points_is_seen(visit, million, complaints) -> None:
    page = visit(million)
    page.wait_for_function("""() => document.querySelector('[data-chart="loss"]').data?.length""", timeout=SLOW_MS)
    drawn = plot(page, "loss")
    assert max(value for value in drawn["lines"][0]["y"] if value is not None) == SPIKE
    assert len(drawn["lines"][0]["y"]) < 1500
    assert drawn["high"] > SPIKE
    height = page.evaluate("""() => document.querySelector('[data-chart="loss"] path.js-line').getBBox().height""")
    assert height > 100  # of the 208 pixels of a chart
    expect(page.locator('[data-count="loss"]')).to_contain_text("of 100,001 points, lowest and highest kept")
    expect(page.locator("#about-loss")).to_contain_text("highest 40")
    assert complaints == []


def test_zoom_is_read_finer_kept_to_the_last_digit_and_left_by_double_click(
    visit, played, million, complaints
) -> None:
    page = visit(million)
    page.wait_for_function("""() => document.querySelector('[data-chart="loss"]').data?.length""", timeout=SLOW_MS)
    before = line(page, "loss", "train")
    drag(page, "loss", 0.69, 0.73)
    zoomed = plot(page, "loss")["x"]
    assert zoomed[0] < SPIKE_AT < zoomed[1]
    expect(page.locator('[data-count="loss"]')).to_contain_text("more within the zoom", timeout=SLOW_MS)
    behind = plot(page, "loss")["lines"][0]
    within = [x for x in behind["x"] if zoomed[0] <= x <= zoomed[1]]
    assert len(within) > 4 * sum(zoomed[0] <= x <= zoomed[1] for x in before["x"])
    assert abs(behind["x"][behind["y"].index(SPIKE)] - SPIKE_AT) < 16
    assert line(page, "loss", "train") == before  # smoothing runs over the whole curve, whatever is zoomed
    newest = STEPS + 2
    for step in range(newest, newest + 3):
        tell(played, million, step, train_loss=0.5)
        wait_for_step(page, "loss", step)
        assert plot(page, "loss")["x"] == zoomed
    assert line(page, "loss", "train")["y"][: len(before["y"]) - 1] == before["y"][:-1]
    page.locator('[data-chart="loss"] .nsewdrag').dblclick()
    page.wait_for_function(
        """(last) => { const axis = document.querySelector('[data-chart="loss"]').layout.xaxis;
        return axis.autorange && axis.range[1] >= last; }""",
        arg=newest + 2,
    )
    expect(page.locator('[data-count="loss"]')).not_to_contain_text("more within the zoom")
    assert complaints == []


def test_what_is_not_finite_is_a_marked_gap(visit, played, short, complaints) -> None:
    for step, value in enumerate([1.0, 0.9, math.nan, 0.8, math.inf, 0.7], start=1):
        tell(played, short, step, train_loss=value)
    page = visit(short)
    wait_for_step(page, "loss", 6)
    values = line(page, "loss", "train")["y"]
    assert [value is None for value in values] == [False, False, True, False, True, False]
    marks = line(page, "loss", "not a number")
    assert (marks["x"], marks["text"]) == ([3, 5], ["NaN at 3", "Infinity at 5"])
    expect(page.locator("#about-loss")).to_contain_text("NaN at 3, Infinity at 5")
    tell(played, short, 7, train_loss=-math.inf)
    wait_for_step(page, "loss", 7)
    assert line(page, "loss", "not a number")["text"][-1] == "−Infinity at 7"
    assert complaints == []


def test_a_log_axis_says_what_it_cannot_show(visit, played, short) -> None:
    for step, value in enumerate([1.0, 0.0, -0.5, 0.25], start=1):
        tell(played, short, step, train_loss=value)
    page = visit(short)
    wait_for_step(page, "loss", 4)
    expect(page.locator("[data-unshown]").first).to_have_text("")
    page.get_by_label("Log y").check()
    told = "2 drawn values at 0 or below cannot be shown on a log axis."
    expect(page.locator('[data-card]:has([data-chart="loss"]) [data-unshown]')).to_contain_text(told)
    page.reload()  # how one looks at charts is remembered
    wait_for_step(page, "loss", 4)
    expect(page.get_by_label("Log y")).to_be_checked()


def test_a_hidden_line_stays_hidden_while_points_arrive_and_after_a_reload(visit, played, short, complaints) -> None:
    for step in range(1, 4):
        tell(played, short, step, eval_action_error=0.5, eval_baseline_error=0.8)
    page = visit(short)
    wait_for_step(page, "error", 3)
    key = page.get_by_role("group", name="Held-out action error: lines shown").get_by_role(
        "button", name="mean action"
    )
    key.press("Enter")
    expect(key).to_have_attribute("aria-pressed", "false")
    tell(played, short, 4, eval_action_error=0.4, eval_baseline_error=0.8)
    wait_for_step(page, "error", 4)
    assert line(page, "error", "mean action") is None
    page.reload()
    wait_for_step(page, "error", 4)
    assert line(page, "error", "mean action") is None
    key.click()
    assert line(page, "error", "mean action")["y"] == [pytest.approx(0.8)] * 4
    assert complaints == []


def test_every_series_has_a_chart_in_its_group_and_a_search_finds_it(visit, played, short, complaints) -> None:
    tell(played, short, 1, train_loss=1.0)
    page = visit(short)
    wait_for_step(page, "loss", 1)
    played.runtime.tell(*short, MetricsRecorded(step=2, values={f"probe/{i}": float(i) for i in range(300)}))
    played.runtime.tell(*short, MetricsRecorded(step=3, values={"<img src=x onerror=alert(1)>": 1.0}))
    expect(page.locator('[data-chart^="series:probe/"]')).to_have_count(300, timeout=SLOW_MS)
    expect(page.get_by_role("heading", name="probe/", exact=True)).to_be_attached()
    assert page.evaluate(DRAWN) < 20
    page.get_by_placeholder("Search charts").fill("probe/217")
    expect(page.locator("[data-card]:visible")).to_have_count(1)
    page.wait_for_function("""() => document.querySelector('[data-chart="series:probe/217"]').data""")
    assert line(page, "series:probe/217", "217")["y"] == [pytest.approx(217.0)]
    page.get_by_placeholder("Search charts").fill("onerror")
    expect(page.locator("[data-card]:visible h4")).to_contain_text("<img src=x onerror=alert(1)>")
    page.get_by_placeholder("Search charts").fill("no such thing")
    expect(page.get_by_text("No chart has these words")).to_be_visible()
    assert complaints == []


def test_x_is_time_full_screen_is_the_same_chart_and_values_come_as_a_table(visit, played, short, complaints) -> None:
    for step in range(1, 6):
        tell(played, short, step, train_loss=1.0 / step)
    page = visit(short)
    wait_for_step(page, "loss", 5)
    page.get_by_label("x axis").select_option("Relative time")
    seconds = line(page, "loss", "train")["x"]
    assert seconds == sorted(seconds)
    assert all(-60 < at < 600 for at in seconds)
    page.get_by_label("x axis").select_option("Wall time")
    assert plot(page, "loss")["type"] == "date"
    page.get_by_label("x axis").select_option("Step")
    page.get_by_role("button", name="Loss: full screen").click()
    dialog = page.get_by_role("dialog", name="Loss")
    expect(dialog.locator('[data-chart="loss"]')).to_be_visible()
    wait_for(lambda: page.locator('[data-chart="loss"]').bounding_box()["width"] > 1000)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator('[data-groups] [data-chart="loss"]')).to_be_visible()
    page.get_by_role("button", name="Loss: values as a table").press("Enter")
    row = page.get_by_role("dialog").locator("tbody tr").first
    expect(row.locator("td").first).to_have_text("5")
    expect(row).to_contain_text("0.2")
    with page.expect_download() as waiting:
        page.get_by_role("dialog").get_by_role("link", name="every point as CSV").click()
    assert waiting.value.path().read_text().splitlines()[1].split(",")[1:4] == ["1", "train/loss", "1.0"]
    page.get_by_role("button", name="Close").last.click()
    complaints_before = list(complaints)
    assert [found["id"] for found in Axe().run(page).response["violations"]] == []
    assert complaints_before == []


def test_a_finger_over_a_chart_scrolls_the_page(browser, visit, played, short) -> None:
    """Plotly would take the movement for a zoom, and charts fill a phone's screen."""
    tell(played, short, 1, train_loss=1.0)
    state = visit(short).context.storage_state()
    phone = browser.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, storage_state=state
    )
    page = phone.new_page()
    page.goto(charts_url(played, short))
    page.locator('[data-chart="loss"]').scroll_into_view_if_needed()
    wait_for_step(page, "loss", 1)
    box, before = page.locator('[data-chart="loss"]').bounding_box(), page.evaluate("() => scrollY")
    finger, x, y = phone.new_cdp_session(page), box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    finger.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for moved in range(30, 240, 30):
        finger.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y - moved}]})
        page.wait_for_timeout(30)  # as fast as a finger
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("(before) => scrollY > before + 50", arg=before)
    assert plot(page, "loss")["auto"]
    phone.close()


def test_a_sum_of_decimated_series_has_every_part_in_every_bucket(visit, short) -> None:
    """As the decisions that are older than any curve of their own: one part is told at every third step only."""
    told = visit(short).evaluate(
        """async () => {
            const page = document.querySelector('script[src*="console/js/job.js"]').src;
            const {SeriesStore} = await import(page.replace("/job.js", "/series.js")), store = new SeriesStore(500);
            for (let step = 1; step <= 4000; step++) {
                store.add({series: "a", attempt: 1, step, value: 1, time: step});
                const value = step === 1500 ? 50 : 2;
                if (step % 3 === 0) store.add({series: "b", attempt: 1, step, value, time: step});
            }
            const [sum] = store.sum(["a", "b"]);
            const {total, x, y, hi} = sum;
            return {total, shown: x.length, last: x.at(-1), high: Math.max(...hi), y: y.slice(1, -1)};
        }"""
    )
    assert (told["total"], told["last"], told["high"]) == (4000, 4000, 51)
    assert told["shown"] <= 500
    assert set(told["y"]) == {3}


def test_attempts_are_lines_of_their_own(visit, played, short) -> None:
    tell(played, short, 1, train_loss=1.0)
    tell(played, short, 2, train_loss=0.9)
    played.runtime.tell(short[0], 2, MetricsRecorded(step=1, values={"train/loss": 0.7}))
    page = visit(short)
    page.wait_for_function(
        """() => document.querySelector('[data-chart="loss"]').data?.some((d) => d.name === "train, attempt 2")""",
        timeout=SLOW_MS,
    )
    names = {trace["name"] for trace in plot(page, "loss")["lines"]} - {None}
    assert names == {"train, attempt 1", "train, attempt 2"}
