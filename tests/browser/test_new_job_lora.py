"""LoRA in the form of a new job, in Chromium: switched on, refused, put right, trained, and told of on its policy."""

import re
import time
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from tests.browser.test_new_job import LATE_S, body_shown, estimated, field, fill_in, opened
from tests.support.stack import Stack

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
UNTICKED = ["k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def swapped(page: Page, act: Any) -> None:
    """Do it, and wait for the fields that it brings."""
    with page.expect_response("**/jobs/new/fields/"):
        act()


def ticked(page: Page) -> list[str]:
    return [box.get_attribute("value") or "" for box in page.locator(".boxes input:checked").all()]


def test_a_job_with_lora_is_asked_for_trained_and_told_of(
    stack: Stack, log_in, alice: dict[str, str], version_id: str, finished_job: str, complaints
):
    page = log_in(alice)
    opened(page, stack)
    fill_in(page, version_id, "adapted")
    switch = field(page, "lora")
    expect(switch).not_to_be_checked()
    expect(page.locator(".boxes")).to_have_count(0)
    assert "lora" not in body_shown(page)
    switch.focus()
    swapped(page, lambda: page.keyboard.press("Space"))
    expect(switch).to_be_checked()
    expect(switch).to_be_focused()
    assert ticked(page) == TARGETS
    expect(page.locator('[id="f-lora-error"]')).to_contain_text("read before the text layers")  # by the MLP's images
    swapped(page, lambda: page.locator('[id="f-head.type-oft"]').check())
    expect(page.locator('[id="f-lora-error"]')).to_have_count(0)
    estimated(page, lambda: field(page, "lora.rank").fill("0"))
    expect(page.locator('[id="f-lora.rank-error"]')).to_contain_text("greater than or equal to 1")
    estimated(page, lambda: field(page, "lora.rank").fill("4"))
    expect(page.locator('[id="f-lora.rank-error"]')).to_have_count(0)
    for name in UNTICKED:
        page.get_by_label(name, exact=True).uncheck()
    expect(page.locator("#estimate")).to_contain_text("LoRA on the device")
    expect(page.locator("[data-code=json]")).not_to_contain_text("k_proj")
    assert body_shown(page)["lora"] == {"rank": 4, "target_modules": ["q_proj", "v_proj"]}
    page.get_by_role("button", name="Start job").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    job_id = page.url.rstrip("/").rpartition("/")[2]
    client = stack.client(alice)
    job = client.jobs.wait(job_id, timeout_s=120)
    assert job["state"] == "succeeded"
    assert job["spec"]["lora"] == {"rank": 4, "alpha": 16, "target_modules": ["q_proj", "v_proj"]}
    (adapter,) = client.jobs.artifacts(job_id, kind="adapter")[:1]
    page.goto(f"{stack.url}/policies/{adapter['id']}/")
    expect(page.locator("#manifest")).to_contain_text(f"{adapter['manifest']['lora']['param_count']:,}")
    expect(page.locator("section#usage")).to_contain_text('peft.PeftModel.from_pretrained(model, "adapter/lora")')
    page.goto(f"{stack.url}/jobs/new/?from={job_id}")
    expect(field(page, "lora.rank")).to_have_value("4")
    assert ticked(page) == ["q_proj", "v_proj"]
    expect(page.locator(".was")).to_have_count(0)
    estimated(page, lambda: page.get_by_label("k_proj", exact=True).check())
    expect(page.locator(".was")).to_have_text("was q_proj, v_proj")
    swapped(page, switch.uncheck)
    expect(page.locator(".was")).to_have_text("was on")
    swapped(page, switch.check)
    assert ticked(page) == ["q_proj", "k_proj", "v_proj"]
    assert complaints == []


def test_a_box_that_is_changed_while_fields_are_on_their_way_stays_as_it_is(
    stack: Stack, log_in, alice: dict[str, str], version_id: str, finished_job: str, complaints
):
    page = log_in(alice)
    opened(page, stack)
    fill_in(page, version_id, "early")
    swapped(page, field(page, "lora").check)

    def late(route: Route) -> None:
        time.sleep(LATE_S)
        route.continue_()

    page.route("**/jobs/new/fields/", late)
    page.locator('[id="f-head.type-oft"]').check()
    page.get_by_label("k_proj", exact=True).uncheck()
    expect(field(page, "head.expansion")).to_be_attached()
    expect(page.get_by_label("k_proj", exact=True)).not_to_be_checked()
    assert ticked(page) == [name for name in TARGETS if name != "k_proj"]
    expect(page.locator("[data-code=json]")).not_to_contain_text("k_proj")
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_opened_group_is_accessible_and_fits(
    stack: Stack, log_in, alice: dict[str, str], finished_job: str, complaints, scheme: Any, width: int
):
    page = log_in(alice)
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    opened(page, stack)
    swapped(page, field(page, "lora").check)
    expect(page.locator(".boxes")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert complaints == []
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []
    complaints.clear()  # axe measures with styles of its own, which the policy refuses


def test_without_script_the_switch_alone_is_enough(stack: Stack, browser, alice: dict[str, str], finished_job: str):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{stack.url}/login/")
    page.get_by_label("E-mail").fill(alice["email"])
    page.get_by_label("Password").fill(alice["password"])
    page.get_by_role("button", name="Log in").click()
    page.goto(f"{stack.url}/jobs/new/?from={finished_job}")
    page.locator('[id="f-head.type-oft"]').check()
    page.locator('[id="f-lora"]').check()
    page.locator(".field", has=page.locator('[id="f-lora"]')).get_by_role("button", name="Show its fields").click()
    assert ticked(page) == TARGETS
    for name in UNTICKED:
        page.get_by_label(name, exact=True).uncheck()
    page.get_by_role("button", name="Start job").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    client = stack.client(alice)
    job = client.jobs.get(page.url.rstrip("/").rpartition("/")[2])
    assert job["spec"]["lora"] == {"rank": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj"]}
    client.jobs.cancel(job["id"])
    context.close()
