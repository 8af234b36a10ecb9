"""Settings in Chromium: a key that works, people, endpoints, the theme."""

import re

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.stack import Stack

pytestmark = pytest.mark.browser

SECTIONS = ("members", "projects", "keys", "webhooks", "audit", "appearance")


@pytest.fixture
def settings(log_in, stack: Stack, alice: dict[str, str]):
    page = log_in(alice)

    def opened(section: str) -> Page:
        page.goto(f"{stack.url}/settings/{section}/")
        return page

    return opened


def test_a_key_made_on_the_page_opens_the_api_until_it_is_revoked(settings, stack, complaints):
    page = settings("keys")
    page.get_by_label("Name", exact=True).fill("<img src=x onerror=alert(1)>")
    page.get_by_role("button", name="Make key").click()
    text = page.locator("#issued").inner_text()
    asked = {"url": f"{stack.url}/api/v1/jobs", "headers": {"Authorization": f"Bearer {text}"}}
    assert httpx.get(**asked).status_code == 200
    settings("keys")
    expect(page.locator("body")).not_to_contain_text(text)
    row = page.get_by_role("row", name=re.compile("<img src=x"))
    row.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("button", name="Keep")).to_be_focused()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    assert httpx.get(**asked).status_code == 401
    assert complaints == []


def test_somebody_is_invited_and_the_offer_taken_back(settings):
    page = settings("members")
    page.get_by_label("E-mail address").fill("dora@example.org")
    page.get_by_role("button", name="Send invitation").click()
    expect(page.get_by_role("status").filter(has_text="on its way")).to_be_visible()
    offers = page.get_by_role("region", name="Open invitations")
    expect(offers).to_contain_text("dora@example.org")
    page.get_by_role("button", name="Take back the invitation of dora@example.org").click()
    expect(offers).to_have_count(0)


def test_an_inner_address_is_refused_beside_its_form_and_stays_typed(settings):
    page = settings("webhooks")
    page.get_by_label("Address").fill("https://127.0.0.1/hook")
    page.get_by_role("button", name="Add endpoint").click()
    expect(page.get_by_role("alert")).to_contain_text("127.0.0.1")
    expect(page.get_by_label("Address")).to_have_value("https://127.0.0.1/hook")


def test_the_theme_is_chosen_kept_and_the_same_as_the_buttons(settings, page):
    settings("appearance").get_by_role("radio", name="Dark Always.").check()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    settings("members")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Theme: dark").click()
    settings("appearance")
    expect(page.get_by_label("Follow the system")).to_be_checked()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_section_is_accessible_and_fits(settings, page, theme, width, complaints):
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    for section in SECTIONS:
        settings(section)
        assert Axe().run(page).response["violations"] == [], section
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, section
    assert complaints == []
