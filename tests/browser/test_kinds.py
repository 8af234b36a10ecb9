"""Reinforcement learning, evaluations and their films in Chromium."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from gpu_runtime.protocol.messages import MetricsRecorded
from tests.browser.played import Key, Played, played_platform
from tests.support import console

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
TRACES = """(id) => document.querySelector(`[data-chart="${id}"]`)
    .data.map((trace) => ({ name: trace.name, x: [...trace.x], fill: trace.fill }))"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played_platform(tmp_path_factory.mktemp("played")) as platform:
        yield platform


@pytest.fixture(scope="module")
def learning(played: Played) -> Key:
    """PPO at its twelfth version; the KL of the ninth was not a number."""
    key = played.start(console.rl_spec(played.adapter_id))
    for version in range(1, 13):
        played.runtime.tell(*key, console.rl_metrics(version))
    return key


@pytest.fixture(scope="module")
def evaluated(played: Played) -> Key:
    """An evaluation of three tasks that has ended, with films of each outcome."""
    key = played.start(console.evaluation_spec(played.adapter_id, tasks=console.TASKS))
    for metrics in console.evaluation_metrics(console.TASKS):
        played.runtime.tell(*key, metrics)
    for seed, outcome in ((50_000, "fail"), (50_001, "success"), (50_002, "success"), (50_004, "error")):
        played.film(key, seed=seed, outcome=outcome)
    played.publish(key, console.report_of(key[0], console.TASKS))
    played.succeed(key, 60)
    played.client.jobs.wait(key[0], timeout_s=60)
    return key


@pytest.fixture
def visit(log_in_at, played: Played):
    """Open a page of this platform as Dora."""

    def go(path: str) -> Page:
        page = log_in_at(played.stack, played.lab)
        page.goto(f"{played.stack.url}{path}")
        return page

    return go


def traces(page: Page, chart: str) -> list[dict[str, Any]]:
    return page.evaluate(TRACES, chart)


def wait_for_version(page: Page, version: int) -> None:
    page.wait_for_function(
        """(version) => document.querySelector('[data-chart="return"]').data?.at(-1)?.x?.at(-1) === version""",
        arg=version,
        timeout=SLOW_MS,
    )


def test_rl_charts_follow_live_over_versions_or_environment_steps(visit, played: Played, learning, complaints):
    page = visit(f"/jobs/{learning[0]}/")
    wait_for_version(page, 12)
    for version in (13, 14, 15):
        played.runtime.tell(*learning, console.rl_metrics(version))
    wait_for_version(page, 15)
    assert traces(page, "return")[-1]["x"] == list(range(1, 16))
    assert [trace["fill"] for trace in traces(page, "success")].count("tonexty") == 1  # the interval
    page.locator('[data-chart="kl"]').scroll_into_view_if_needed()
    page.wait_for_function("""() => document.querySelector('[data-chart="kl"]').data?.length >= 3""")
    assert [trace["x"] for trace in traces(page, "kl") if trace["name"] == "not a number"] == [[9]]
    page.get_by_label("x axis").select_option("Environment steps")
    page.locator('[data-chart="return"]').scroll_into_view_if_needed()
    wait_for_version(page, 15 * 560)
    assert traces(page, "return")[-1]["x"] == [560 * version for version in range(1, 16)]
    expect(page.locator(".head").get_by_role("link", name="weak start")).to_be_visible()
    assert complaints == []


def test_decisions_older_than_eight_versions_are_one_curve(visit, played: Played, complaints):
    spec = console.rl_spec(played.adapter_id)
    key = played.start(spec | {"collection": spec["collection"] | {"max_staleness": 12}})
    for version, counts in ((13, {0: 5, 9: 2}), (14, {0: 4, 9: 1, 12: 3})):
        values = {f"rollout/staleness/{age}": float(count) for age, count in counts.items()}
        played.runtime.tell(*key, MetricsRecorded(step=version, values=values))
    page = visit(f"/jobs/{key[0]}/")
    page.locator('[data-chart="ages"]').scroll_into_view_if_needed()
    page.wait_for_function(
        """() => document.querySelector('[data-chart="ages"]').data?.find((d) => d.name === "older")?.x.length === 2"""
    )
    drawn = page.evaluate("""() => document.querySelector('[data-chart="ages"]').data.map((d) => [d.name, d.y])""")
    assert drawn == [["0 behind", [5, 4]], ["older", [2, 4]]]
    assert complaints == []


def test_films_arrive_live_while_another_plays_and_seeks(visit, played: Played, complaints):
    key = played.start(console.evaluation_spec(played.adapter_id, name="under way"))
    played.film(key, seed=50_001, outcome="success")
    page = visit(f"/jobs/{key[0]}/?tab=rollouts")
    films = page.locator("figure.video")
    expect(films).to_have_count(1, timeout=SLOW_MS)
    films.first.scroll_into_view_if_needed()
    film = page.locator('figure[data-title="PushCube-v1, seed 50001, version 60, success"] video')
    page.wait_for_function("() => document.querySelector('video').readyState >= 1", timeout=SLOW_MS)
    assert film.evaluate("(video) => Math.round(video.duration)") == 6
    film.evaluate("(video) => { video.loop = true; window.film = video; return video.play(); }")
    film.evaluate("(video) => new Promise((done) => { video.onseeked = done; video.currentTime = 4; })")
    assert film.evaluate("(video) => video.currentTime") >= 4
    played.film(key, seed=50_000, outcome="fail")
    expect(films).to_have_count(2, timeout=SLOW_MS)
    expect(films.first.locator(".pill")).to_have_text("Failure")
    assert page.evaluate("() => window.film.isConnected && !window.film.paused")
    assert played.runtime.ranges_served
    assert complaints == []


def test_films_are_filtered_and_two_are_compared(visit, evaluated, complaints):
    page = visit(f"/jobs/{evaluated[0]}/?tab=rollouts")
    films = page.locator("[data-gallery] figure")
    expect(films).to_have_count(4)
    page.locator("#videos").get_by_role("radio", name="Success").check(force=True)
    expect(films).to_have_count(2, timeout=SLOW_MS)
    assert page.url.endswith("?tab=rollouts&outcome=success")
    for box in page.get_by_role("checkbox", name=re.compile("Compare")).all():
        box.check()
    page.get_by_role("button", name="Play 2 side by side").click()
    dialog = page.get_by_role("dialog", name="Side by side")
    expect(dialog.locator("video")).to_have_count(2)
    dialog.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('#compare video')].every((video) => video.currentTime > 0)",
        timeout=SLOW_MS,
    )
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.reload()
    expect(films).to_have_count(2)
    assert complaints == []


def test_the_result_appears_when_the_evaluation_ends(visit, played: Played, complaints):
    key = played.start(console.evaluation_spec(played.adapter_id, name="soon over"))
    for metrics in console.evaluation_metrics():
        played.runtime.tell(*key, metrics)
    page = visit(f"/jobs/{key[0]}/?tab=evaluation")
    expect(page.get_by_role("heading", name="No report yet")).to_be_visible()
    played.publish(key, console.report_of(key[0]))
    played.succeed(key, 20)
    result = page.get_by_role("region", name="Success by task")
    expect(result).to_contain_text("57.9\u00a0%", timeout=SLOW_MS)
    expect(result).to_contain_text("36.3–76.9")
    episodes = page.locator("#episodes")
    episodes.scroll_into_view_if_needed()
    expect(episodes.locator("tbody tr")).to_have_count(20, timeout=SLOW_MS)
    episodes.get_by_role("radio", name="Error 1").check(force=True)
    expect(episodes.locator("tbody tr")).to_have_count(1, timeout=SLOW_MS)
    with page.expect_download() as waiting:
        episodes.get_by_role("link", name="CSV").click()
    assert waiting.value.path().read_text().count("\n") == 21
    assert complaints == []


def test_a_recording_is_followed_to_its_dataset_also_after_the_job_has_ended(visit, played: Played, complaints):
    key = played.start(console.rollout_spec(played.adapter_id))
    page = visit(f"/jobs/{key[0]}/")
    made = page.locator("[data-made]")
    expect(made).to_be_hidden()
    empty_zip = b"PK\x05\x06" + bytes(18)
    whole = console.published("dataset", f"{key[0]}-data", empty_zip, "application/zip")
    played.publish(key, console.Published(whole.told, b"other bytes"))
    expect(made).to_contain_text("being taken in", timeout=SLOW_MS)
    expect(made).to_contain_text("published was", timeout=SLOW_MS)  # what hinders it
    played.succeed(key, 10)
    expect(page.locator("[data-live]")).to_have_text("Ended", timeout=SLOW_MS)
    played.runtime.artifacts[whole.told.artifact_id] = empty_zip
    expect(made).to_contain_text("pushed by itself, version 1, invalid", timeout=SLOW_MS)
    assert complaints == []


def test_the_runtime_page_tells_of_three_services_over_time(visit, played: Played, complaints):
    tenant_id = next(iter(played.runtime.submitted.values())).tenant_id
    for span in console.service_spans(tenant_id, played.runtime.now_us, minutes=5):
        played.runtime.tell(None, None, span)
    page = visit("/runtime/")
    for service in ("training", "inference", "environment"):
        expect(page.locator(f'[data-service="{service}"] [data-f=busy]')).to_have_text("25.0", timeout=SLOW_MS)
    expect(page.locator('[data-service="environment"] [data-f=seats]')).to_have_text("3 of 32")
    expect(page.locator('[data-service="inference"] [data-f=latency]')).to_have_text("40\u00a0ms")
    page.wait_for_function(
        "() => JSON.parse(document.getElementById('fig-own').textContent).data.every((l) => Math.max(...l.y) > 5)",
        timeout=SLOW_MS,
    )
    assert complaints == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1440)])
def test_pages_of_new_kinds_are_accessible_and_fit_the_screen(visit, learning, evaluated, scheme, width):
    page = visit("/jobs/")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    for path in ("/jobs/", f"/jobs/{learning[0]}/", f"/jobs/{evaluated[0]}/"):
        page.goto(page.url.split("/jobs/")[0] + path)
        page.wait_for_load_state("networkidle")
        for fold in page.locator("main details.fold > summary").all():
            fold.click()
        found = Axe().run(page).response["violations"]
        assert [f"{path} {v['id']}: {v['nodes'][0]['html'][:120]}" for v in found] == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_a_models_name_keeps_its_line_in_the_list_of_jobs(visit, learning, evaluated):
    page = visit("/jobs/")
    lines = "(names) => names.map((name) => name.getClientRects().length)"
    for width in (1440, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert set(page.locator("tbody .lo .word").evaluate_all(lines)) == {1}
