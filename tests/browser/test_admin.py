"""The operators' admin in Chromium: what is done daily, under the strict policy, by keyboard names and eyes."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.stack import Stack

pytestmark = pytest.mark.browser

SHOTS = os.environ.get("JOYNEXUS_TEST_SCREENSHOTS")  # a folder, to look at what the tests saw
SLOW_MS = 60_000


@pytest.fixture(scope="session")
def olga(stack: Stack) -> dict[str, str]:
    """An operator of the platform."""
    import json

    told = stack.manage("bootstrap", "--tenant", "Platform", "--email", "olga@example.invalid", "--staff")
    return json.loads(told.strip().splitlines()[-1])


@pytest.fixture
def admin(log_in: Any, stack: Stack, olga: dict[str, str]) -> Page:
    """Logged in as Olga, on the first page."""
    page: Page = log_in(olga)
    page.goto(f"{stack.url}/admin/")
    expect(page.get_by_role("heading", name="What needs attention")).to_be_visible()
    return page


def open_tenant(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Tenants").click()
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def act(page: Page, title: str) -> Any:
    """The opened form of an act."""
    section = page.locator("details.act").filter(has=page.get_by_text(title, exact=True))
    section.locator("summary").click()
    return section


def test_a_limit_is_raised_for_a_while(admin: Page, finished_job: str, complaints: list[str]):
    open_tenant(admin, "Alice lab")
    form = act(admin, "Set a limit")
    form.get_by_label("Resource").select_option("running_jobs")
    form.get_by_label("Limit").fill("40")
    until = (datetime.now(UTC) + timedelta(days=7)).date().isoformat()
    form.get_by_label("Until").fill(until)
    form.get_by_label("Reason").fill("conference week")
    form.get_by_role("button", name="Set the limit").click()
    expect(admin.get_by_text("The limit of running jobs is 40")).to_be_visible()
    expect(admin.get_by_role("row", name=re.compile("Running jobs"))).to_contain_text(f"operator until {until}")
    assert complaints == []


def test_credit_is_granted_with_a_reason(admin: Page, finished_job: str, complaints: list[str]):
    open_tenant(admin, "Alice lab")
    form = act(admin, "Grant credit")
    form.get_by_label("Amount").fill("25")
    form.get_by_role("button", name="Grant credit").click()
    expect(admin.get_by_text("This field is required.")).to_be_visible()
    form = admin.locator("details.act[open]")
    form.get_by_label("Reason").fill("thanks for the pilot")
    form.get_by_role("button", name="Grant credit").click()
    expect(admin.get_by_text("25.00 EUR of credit granted").or_(admin.get_by_text("25 EUR of credit"))).to_be_visible()
    expect(admin.locator(".figures").first).to_contain_text("25.00 EUR")
    expect(admin.get_by_role("row", name=re.compile("credit.granted"))).to_contain_text("thanks for the pilot")
    assert complaints == []


def test_a_tenant_is_paused_and_resumed(admin: Page, charlie: dict[str, str], complaints: list[str]):
    open_tenant(admin, "Charlie lab")
    form = act(admin, "Pause")
    form.get_by_label("Reason").fill("unpaid since May")
    form.get_by_role("button", name="Pause this tenant").click()
    expect(admin.get_by_text("Paused: unpaid since May")).to_be_visible()
    form = act(admin, "Resume")
    form.get_by_label("Reason").fill("it has paid")
    form.get_by_role("button", name="Resume this tenant").click()
    expect(admin.get_by_text("Charlie lab works again.")).to_be_visible()
    assert complaints == []


def test_a_price_is_changed_after_its_effect_was_seen(admin: Page, finished_job: str, complaints: list[str]):
    admin.get_by_role("navigation", name="Screens").get_by_role("link", name="Prices").click()
    admin.get_by_role("link", name="Change train.samples").click()
    admin.get_by_label("Amount").fill("0.50")
    admin.get_by_label("Per units").fill("1000")
    admin.get_by_label("From, UTC").fill("2100-01-01T00:00")
    admin.get_by_label("Reason").fill("dearer power")
    admin.get_by_role("button", name="Show what it would have cost").click()
    effect = admin.get_by_role("region", name="Effect")
    expect(effect.get_by_role("row", name=re.compile("Alice lab"))).to_contain_text("0.08")  # 160 samples
    shoot(admin, "price-preview")
    admin.goto(admin.url)  # nothing was announced yet
    expect(admin.get_by_text("To come:")).to_have_count(0)
    admin.get_by_label("Amount").fill("0.50")
    admin.get_by_label("Per units").fill("1000")
    admin.get_by_label("From, UTC").fill("2100-01-01T00:00")
    admin.get_by_label("Reason").fill("dearer power")
    admin.get_by_role("button", name="Show what it would have cost").click()
    admin.get_by_role("button", name="Announce from 2100-01-01 00:00 UTC").click()
    expect(admin.get_by_text("Announced: 0.5 EUR per 1000 train.samples")).to_be_visible()
    expect(admin.get_by_role("row", name=re.compile("^train.samples"))).to_contain_text("from 2100-01-01")
    assert complaints == []


def test_a_list_leaves_as_csv(admin: Page, stack: Stack, finished_job: str, tmp_path: Path, complaints: list[str]):
    admin.goto(f"{stack.url}/admin/jobs/job/")
    admin.get_by_label("Select all objects on this page for an action").check()
    admin.get_by_label("Action:").select_option("export_as_csv")
    with admin.expect_download() as waiting:
        admin.get_by_role("button", name="Go").click()
    waiting.value.save_as(tmp_path / "jobs.csv")
    assert "Alice lab" in (tmp_path / "jobs.csv").read_text()
    assert complaints == []


PAGES = [
    "",
    "tenants/tenant/",
    "prices/",
    "prices/standard/train.samples/",
    "prices/standard/priorities/",
    "runtime/",
    "jobs/job/",
    "billing/invoice/",
    "webhooks/webhookdelivery/",
    "audit/auditevent/",
    "billing/reconciliationrun/",
    "records/",
    "auth/group/add/",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_screens_are_accessible_fit_and_keep_the_policy(
    admin: Page, stack: Stack, finished_job: str, complaints: list[str], scheme: Any, width: int
):
    admin.emulate_media(color_scheme=scheme)
    admin.set_viewport_size({"width": width, "height": 900})
    admin.goto(f"{stack.url}/admin/tenants/tenant/")
    tenant = admin.get_by_role("link", name="Alice lab", exact=True).get_attribute("href") or ""
    for path in [*PAGES, tenant.removeprefix("/admin/")]:
        admin.goto(f"{stack.url}/admin/{path}")
        admin.wait_for_load_state("networkidle")
        shoot(admin, f"{path.strip('/').replace('/', '-') or 'attention'}-{scheme}-{width}")
        assert complaints == [], path
        found = Axe().run(admin).response["violations"]
        assert [f"{path} {v['id']}: {v['nodes'][0]['html'][:160]}" for v in found] == []
        complaints.clear()  # axe measures with styles of its own, which the policy refuses
        assert admin.evaluate("() => document.documentElement.scrollWidth") <= width, path


def shoot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)
