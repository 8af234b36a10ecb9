"""A job is asked for in Chromium: typed, cloned, refused, by keyboard alone, on a phone."""

import json
import re
import shlex
import time
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from tests.support.stack import Stack

LATE_S = 0.8  # how long an answer is held back


def field(page: Page, name: str) -> Any:
    return page.locator(f'[id="f-{name}"]')


def body_shown(page: Page) -> Any:
    """The specification in the curl command, as a shell and the API would read it."""
    command = shlex.split((page.locator("[data-code=curl]").text_content() or "").replace("\\\n", " "))
    return json.loads(command[command.index("--json") + 1])


def opened(page: Page, stack: Stack, query: str = "") -> None:
    page.goto(f"{stack.url}/jobs/new/{query}")
    expect(page.locator("#estimate")).to_be_visible()


def estimated(page: Page, act: Any) -> None:
    """Do it, and wait for the estimate that follows."""
    with page.expect_response("**/jobs/new/estimate/"):
        act()


def fill_in(page: Page, version_id: str, name: str) -> None:
    """A short fine-tuning job, in the order of the page."""
    field(page, "name").fill(name)
    with page.expect_response("**/jobs/new/fields/"):
        page.locator('[id="f-head.type-mlp"]').check()
    with page.expect_response("**/jobs/new/fields/"):
        field(page, "dataset.id").select_option(version_id)
    expect(field(page, "dataset.cameras").locator("..").locator(".help")).to_contain_text("observation.images")
    field(page, "dataset.image_size").fill("32")
    field(page, "training.batch_size").fill("4")
    estimated(page, lambda: field(page, "training.steps").fill("20"))


def contains(whole: Any, part: Any) -> bool:
    """Numbers compare as numbers, so 1e-3 is 0.001."""
    if isinstance(part, dict):
        return all(contains(whole[name], value) for name, value in part.items())
    return bool(whole == part)


def test_a_job_is_typed_estimated_and_submitted_as_the_code_says(
    stack: Stack, log_in, alice: dict[str, str], version_id: str, finished_job: str, complaints
):
    page = log_in(alice)
    opened(page, stack)
    fill_in(page, version_id, "typed by hand")
    money = page.locator("#estimate .money")
    expect(money).to_contain_text("€")
    cheap = money.inner_text()
    estimated(page, lambda: field(page, "training.steps").fill("2000"))
    expect(money).not_to_have_text(cheap)
    estimated(page, lambda: field(page, "training.steps").fill("20"))
    expect(money).to_have_text(cheap)
    expect(page.locator("#submit-says")).to_contain_text("Holds €")
    body = body_shown(page)
    page.get_by_role("button", name="Start job").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    job = stack.client(alice).jobs.get(page.url.rstrip("/").rpartition("/")[2])
    assert contains(job["spec"], body)
    assert job["spec"]["training"]["steps"] == 20
    assert complaints == []


def test_a_clone_says_what_it_changes(stack: Stack, log_in, alice: dict[str, str], finished_job: str, complaints):
    page = log_in(alice)
    opened(page, stack, f"?from={finished_job}")
    expect(field(page, "name")).to_have_value("<img src=x onerror=alert(1)>")
    expect(page.locator(".was")).to_have_count(0)
    estimated(page, lambda: field(page, "training.steps").fill("41"))
    expect(page.locator(".was")).to_have_text("was 40")
    field(page, "training.steps").fill("40")
    expect(page.locator(".was")).to_have_count(0)
    estimated(page, lambda: field(page, "training.steps").fill("42"))
    page.get_by_role("button", name="Start job").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    client = stack.client(alice)
    clone, parent = client.jobs.get(page.url.rstrip("/").rpartition("/")[2]), client.jobs.get(finished_job)
    parent["spec"]["training"]["steps"] = 42
    assert clone["spec"] | {"cloned_from": None} == parent["spec"]
    assert clone["spec"]["cloned_from"] == finished_job
    assert complaints == []


def test_another_head_and_another_kind_lose_nothing(
    stack: Stack, log_in, alice: dict[str, str], version_id: str, finished_job: str, complaints
):
    page = log_in(alice)
    opened(page, stack)
    fill_in(page, version_id, "kept")
    page.locator("summary", has_text="Action head, MLP").click()
    estimated(page, lambda: field(page, "head.pca_dims").fill("16"))
    page.locator('[id="f-head.type-oft"]').check()
    expect(field(page, "head.expansion")).to_be_attached()
    expect(field(page, "head.pca_dims")).to_have_count(0)
    page.locator("#kind-rl").check()
    expect(field(page, "training.iterations")).to_be_visible()
    expect(field(page, "name")).to_have_value("kept")
    page.locator("#kind-sft").check()
    page.locator('[id="f-head.type-mlp"]').check()
    expect(field(page, "head.pca_dims")).to_have_value("16")
    expect(field(page, "head.pca_dims")).to_be_visible()  # its fold is open as it was left
    expect(field(page, "training.steps")).to_have_value("20")
    assert complaints == []


def test_what_is_typed_while_fields_are_on_their_way_stays(
    stack: Stack, log_in, alice: dict[str, str], version_id: str, finished_job: str, complaints
):
    page = log_in(alice)
    opened(page, stack)
    fill_in(page, version_id, "early")

    def late(route: Route) -> None:
        time.sleep(LATE_S)
        route.continue_()

    page.route("**/jobs/new/fields/", late)
    page.locator('[id="f-head.type-oft"]').check()
    field(page, "name").fill("typed meanwhile")
    expect(field(page, "head.expansion")).to_be_attached()
    expect(field(page, "name")).to_have_value("typed meanwhile")
    expect(page.locator("[data-code=json]")).to_contain_text("typed meanwhile")
    assert complaints == []


def test_a_refusal_stands_beside_its_field_until_it_is_put_right(
    stack: Stack, log_in, alice: dict[str, str], version_id: str, finished_job: str, complaints
):
    page = log_in(alice)
    opened(page, stack)
    expect(page.locator("#checks")).to_contain_text("Still needed: Name")
    expect(page.locator(".err")).to_have_count(0)  # nobody was there yet
    fill_in(page, version_id, "refused at first")
    estimated(page, lambda: field(page, "head.horizon").fill("60"))
    expect(page.locator('[id="f-head.horizon-error"]')).to_contain_text("longest episode")
    expect(field(page, "head.horizon")).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Start job").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was submitted")
    expect(field(page, "training.steps")).to_have_value("20")
    page.get_by_role("alert").get_by_role("link", name="Chunk length").click()
    expect(field(page, "head.horizon")).to_be_focused()
    estimated(page, lambda: field(page, "head.horizon").fill("4"))
    expect(page.locator('[id="f-head.horizon-error"]')).to_have_count(0)
    page.get_by_role("button", name="Start job").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    assert [text for text in complaints if "422" not in text] == []  # the browser tells of the refusal, too


def test_the_keyboard_is_enough_and_enter_in_a_field_does_not_spend(
    stack: Stack, log_in, alice: dict[str, str], version_id: str, finished_job: str, complaints
):
    page = log_in(alice)
    opened(page, stack, f"?from={finished_job}")
    page.locator("#kind-sft").focus()
    seen = []
    for _ in range(80):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))
        if seen[-1] == "f-name":
            page.keyboard.press("Control+A")
            page.keyboard.type("by keyboard")
            page.keyboard.press("Enter")
        if seen[-1] == "submit":
            break
    assert {"f-name", "f-training.steps", "f-budget.max_cost", "as-python", "copy-code", "submit"} <= set(seen)
    assert page.url.endswith(f"?from={finished_job}")
    expect(page.locator("[data-code=json]")).to_contain_text("by keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("kind", ["rl", "evaluation"])
def test_it_is_accessible_and_fits_in_both_themes(
    stack: Stack, log_in, alice: dict[str, str], finished_job: str, complaints, scheme: Any, width: int, kind: str
):
    page = log_in(alice)
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    opened(page, stack, f"?kind={kind}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for fold in page.locator("details.fold > summary").all():
        fold.click()
    assert complaints == []
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []
    complaints.clear()  # axe measures with styles of its own, which the policy refuses


def test_without_script_a_job_is_submitted_all_the_same(
    stack: Stack, browser, alice: dict[str, str], finished_job: str
):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{stack.url}/login/")
    page.get_by_label("E-mail").fill(alice["email"])
    page.get_by_label("Password").fill(alice["password"])
    page.get_by_role("button", name="Log in").click()
    page.goto(f"{stack.url}/jobs/new/?from={finished_job}")
    page.locator('[id="f-name"]').fill("no script")
    page.locator('[id="f-head.type-oft"]').check()
    page.get_by_role("button", name="Show its fields").first.click()
    expect(page.locator('[id="f-head.blocks"]')).to_be_attached()
    page.locator('[id="f-head.type-mlp"]').check()
    page.get_by_role("button", name="Start job").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    assert stack.client(alice).jobs.get(page.url.rstrip("/").rpartition("/")[2])["name"] == "no script"
    context.close()
