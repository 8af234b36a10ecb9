"""Policies and results in Chromium: films by version, side by side; success over versions, lineage, deleting."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.played import Key, Played, played_platform, wait_for
from tests.support import console

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
TIMES = "(videos) => videos.map((video) => video.currentTime)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """Dora's lab: PPO made ``better`` of "weak start"; both were evaluated from the same seeds and filmed."""

    played: Played
    rl: Key
    better: str  # id of the policy
    checks: tuple[Key, Key]  # of the start and of what PPO made of it


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with played_platform(tmp_path_factory.mktemp("policies")) as played:
        rl = played.start(console.rl_spec(played.adapter_id, name="push further"))
        played.publish(rl, console.adapter_of(rl[0], version=60))
        played.succeed(rl, 60)
        adapters = wait_for(lambda: played.client.jobs.artifacts(rl[0], kind="adapter"))
        better = str(adapters[0]["id"])
        before = judge(played, played.adapter_id, name="before", films={50_001: "fail", 50_002: "success"})
        after = judge(played, better, name="after", films={50_001: "success", 50_002: "success", 50_004: "error"})
        yield Lab(played=played, rl=rl, better=better, checks=(before, after))


def judge(played: Played, policy: str, *, name: str, films: dict[int, str]) -> Key:
    """An evaluation that has ended."""
    key = played.start(console.evaluation_spec(policy, name=name))
    for seed, outcome in films.items():
        played.film(key, seed=seed, outcome=outcome)
    played.publish(key, console.report_of(key[0]))
    played.succeed(key, 20)
    played.client.jobs.wait(key[0], timeout_s=60)
    return key


@pytest.fixture
def visit(log_in_at, lab: Lab):
    """Open a page of this platform as Dora."""

    def go(path: str) -> Page:
        page = log_in_at(lab.played.stack, lab.played.lab)
        page.goto(f"{lab.played.stack.url}{path}")
        return page

    return go


def test_films_of_a_jobs_policies_are_chosen_by_version_outcome_and_seed(visit, lab: Lab, complaints):
    page = visit(f"/jobs/{lab.rl[0]}/?tab=rollouts")
    films = page.locator("#videos figure.video")
    expect(films).to_have_count(5)
    page.get_by_label("Policy version", exact=True).select_option("start")
    expect(films).to_have_count(2, timeout=SLOW_MS)
    expect(films.first).to_contain_text("the start")
    page.locator("#videos").get_by_role("radio", name="Failure").check(force=True)
    expect(films).to_have_count(1, timeout=SLOW_MS)
    assert "version=start" in page.url
    assert "outcome=fail" in page.url
    page.reload()
    expect(films).to_have_count(1)
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Seed", exact=True).fill("50001")
    page.keyboard.press("Enter")
    expect(films).to_have_count(2, timeout=SLOW_MS)
    assert complaints == []


def test_a_film_is_scrubbed_by_hovering_and_by_keys_and_plays(visit, lab: Lab, complaints):
    parts: list[int] = []
    page = visit(f"/jobs/{lab.checks[1][0]}/?tab=rollouts")
    page.on("response", lambda answer: parts.append(answer.status) if "/download" in answer.url else None)
    page.reload()
    film = page.locator("figure.video").first
    frame, step = film.locator(".frame"), film.locator("[data-step-now]")
    expect(step).to_have_text("31 / 50")
    page.wait_for_function("() => document.querySelector('video').readyState >= 1", timeout=SLOW_MS)
    box = frame.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(step).to_have_text(re.compile(r"1[56] / 50"))
    seen = int(step.inner_text().split(" ")[0])
    page.mouse.move(0, 0)
    frame.focus()
    page.keyboard.press("ArrowRight")
    expect(step).to_have_text(f"{seen + 1} / 50")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(step).to_have_text(f"{seen - 1} / 50")
    page.keyboard.press("Enter")
    page.wait_for_function("() => !document.querySelector('video').paused", timeout=SLOW_MS)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('video').paused", timeout=SLOW_MS)
    assert set(parts) == {206}
    assert complaints == []


def test_two_versions_from_the_same_seed_play_in_step_after_two_clicks(visit, lab: Lab, complaints):
    page = visit(f"/jobs/{lab.rl[0]}/?tab=rollouts")
    page.get_by_label("Same start, side by side").check()
    row = page.get_by_role("region", name="PushCube-v1, seed 50001")
    row.get_by_role("button", name="Play 2 side by side").click(timeout=SLOW_MS)
    dialog = page.get_by_role("dialog", name="Side by side")
    videos = dialog.locator("video")
    expect(videos).to_have_count(2)
    expect(dialog.locator("figure").first).to_contain_text("the start")
    expect(dialog.locator("figure").last).to_contain_text("version 60")
    dialog.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('#compare video')].every((video) => video.currentTime > 1)",
        timeout=SLOW_MS,
    )
    dialog.get_by_role("button", name="Pause").click()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => [...document.querySelectorAll('#compare video')].every((video) => !video.seeking)")
    first, second = videos.evaluate_all(TIMES)
    assert abs(first - second) < 0.02
    steps = dialog.locator("[data-step-now]").all_inner_texts()
    assert steps[0] == steps[1]
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert complaints == []


def test_films_chosen_on_different_filters_are_put_side_by_side(visit, lab: Lab, complaints):
    page = visit(f"/jobs/{lab.rl[0]}/?tab=rollouts&version=start")
    page.get_by_role("checkbox", name=re.compile("Compare.*seed 50001")).check()
    page.get_by_label("Policy version", exact=True).select_option("60")
    page.get_by_role("checkbox", name=re.compile("Compare.*seed 50004, version 60")).check(timeout=SLOW_MS)
    page.get_by_role("button", name="Play 2 side by side").click()
    expect(page.get_by_role("dialog", name="Side by side").locator("video")).to_have_count(2)
    assert complaints == []


def test_success_over_versions_is_drawn_with_intervals(visit, lab: Lab, complaints):
    page = visit(f"/jobs/{lab.rl[0]}/?tab=evaluation")
    page.wait_for_function("() => document.querySelector('[data-figure=success-once]').data?.length", timeout=SLOW_MS)
    _way, line = page.evaluate("() => document.querySelector('[data-figure=success-once]').data")
    assert line["x"] == [0, 60]
    assert len(line["error_y"]["array"]) == len(line["error_y"]["arrayminus"]) == 2
    table = page.get_by_role("region", name="Evaluations of policies")
    expect(table).to_contain_text("36.3–76.9")
    table.get_by_role("link", name="after").click()
    expect(page.get_by_role("region", name="Success by task")).to_be_visible()
    assert complaints == []


def test_lineage_leads_from_a_job_to_its_start_and_back(visit, lab: Lab, complaints):
    page = visit(f"/jobs/{lab.rl[0]}/?tab=checkpoints")
    lineage = page.get_by_role("group", name="Lineage")
    expect(lineage).to_contain_text("tiny-qwen3-vl")
    expect(lineage.get_by_role("link", name="after")).to_be_visible()
    lineage.get_by_role("link", name="weak start").click()
    page.wait_for_url(f"**/policies/{lab.played.adapter_id}/")
    page.get_by_role("group", name="Lineage").get_by_role("link", name="push further").click()
    page.wait_for_url(f"**/jobs/{lab.rl[0]}/")
    assert complaints == []


def test_policies_are_found_and_compared(visit, lab: Lab, complaints):
    page = visit("/policies/")
    page.get_by_label("Trained how").select_option("rl")
    expect(page.locator("[data-row]")).to_have_count(1)
    assert "trained=rl" in page.url
    page.get_by_role("link", name="Clear").click()
    for box in page.locator("[data-row-select]").all():
        box.check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", name="Compare 2 policies")).to_be_visible()
    expect(page.locator("tr.diff").filter(has_text="Trained").first).to_contain_text("RL, PPO")
    assert complaints == []


def test_deleting_says_what_depends_on_it_and_is_refused_while_a_job_needs_it(visit, lab: Lab, complaints):
    played = lab.played
    doomed = played.start(console.rl_spec(played.adapter_id, name="thrown away"))
    played.publish(doomed, console.adapter_of(doomed[0], version=5))
    played.succeed(doomed, 60)
    policy = str(wait_for(lambda: played.client.jobs.artifacts(doomed[0], kind="adapter"))[0]["id"])
    needs = played.start(console.evaluation_spec(policy, name="needs it"))
    page = visit(f"/policies/{policy}/")

    def delete() -> None:
        page.get_by_role("button", name="Delete", exact=True).click()
        dialog = page.get_by_role("dialog", name="Delete this policy?")
        expect(dialog).to_contain_text("1 job started from it")
        dialog.get_by_role("button", name="Delete policy").click()

    delete()
    expect(page.locator(".note.failed")).to_contain_text(f"Job {needs[0]} starts from this file")
    played.succeed(needs, 20)
    played.client.jobs.wait(needs[0], timeout_s=60)
    page.goto(f"{played.stack.url}/policies/{policy}/")
    delete()
    page.wait_for_url("**/policies/")
    expect(page.get_by_text("was deleted")).to_be_visible()
    page.goto(f"{played.stack.url}/jobs/{doomed[0]}/?tab=checkpoints")
    expect(page.locator("#policies")).to_contain_text("deleted")
    assert [text for text in complaints if "409" not in text] == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)])
def test_policies_and_results_are_accessible_and_fit_the_screen(visit, lab: Lab, scheme, width):
    page = visit("/policies/")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    job, check = f"/jobs/{lab.rl[0]}/?tab=", f"/jobs/{lab.checks[1][0]}/?tab="
    both = f"/policies/compare/?policy={lab.better}&policy={lab.played.adapter_id}"
    tabs = (
        f"{job}rollouts",
        f"{job}rollouts&together=1",
        f"{job}checkpoints",
        f"{job}evaluation",
        f"{check}evaluation",
    )
    for path in ("/policies/", f"/policies/{lab.better}/", both, *tabs):
        page.goto(f"{lab.played.stack.url}{path}")
        page.wait_for_load_state("networkidle")
        found = Axe().run(page).response["violations"]
        assert [f"{path} {v['id']}: {v['nodes'][0]['html'][:120]}" for v in found] == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, path


def test_a_foreign_policy_is_a_missing_page(log_in_at, lab: Lab):
    stack = lab.played.stack
    page = log_in_at(stack, stack.lab("Eve lab"))
    for path in (f"/policies/{lab.better}/", f"/jobs/{lab.rl[0]}/?tab=rollouts"):
        answer = page.goto(f"{stack.url}{path}")
        assert answer is not None
        assert answer.status == 404
    page.goto(f"{stack.url}/policies/compare/?policy={lab.better}&policy={lab.played.adapter_id}")
    expect(page.get_by_text("push further")).to_have_count(0)


def test_a_film_that_cannot_be_read_says_so_and_is_asked_for_again(visit, lab: Lab):
    page = visit(f"/jobs/{lab.rl[0]}/?tab=rollouts")
    page.route("**/api/v1/artifacts/*/download", lambda route: route.fulfill(status=503))
    page.reload()
    film = page.locator("#videos figure.video").first
    expect(film.locator("[data-step-now]")).to_have_text("Cannot be read now: press to try again")
    page.unroute("**/api/v1/artifacts/*/download")
    film.locator("[data-play]").click()
    expect(film.locator("[data-step-now]")).not_to_contain_text("Cannot")
    page.wait_for_function("() => document.querySelector('#videos video').currentTime > 0")


def test_a_policys_page_learns_of_an_evaluation_and_keeps_what_is_open(visit, lab: Lab, complaints):
    page = visit(f"/policies/{lab.better}/")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    rows = page.locator("#measured tbody tr")
    before = rows.count()
    fold = page.locator("#result details", has_text="Protocol")
    fold.locator("summary").click()
    with page.expect_response(f"**/policies/{lab.better}/"):
        page.evaluate("() => document.body.dispatchEvent(new CustomEvent('joynexus:jobs'))")
    expect(fold).to_have_attribute("open", "")
    judge(lab.played, lab.better, name="once more", films={})
    expect(rows).to_have_count(before + 1, timeout=SLOW_MS)
    expect(page.locator("#result")).to_contain_text("once more", timeout=SLOW_MS)
    expect(page.locator("#plot-success-once .main-svg").first).to_be_attached()
    assert complaints == []
