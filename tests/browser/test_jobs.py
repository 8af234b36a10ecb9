"""The job list in Chromium: all in the address, a selection that lasts, acts that ask first, keys, both themes."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from joynexus_client import Client
from tests.support.stack import Stack, sft_spec, upload_demonstrations

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
MARKUP = "<img src=x onerror=alert(1)>"
MANY = 200
COPIES = """
import uuid
from jobs.models import Job
from tenants.models import Tenant
from tenants.scope import platform_scope
with platform_scope():
    one = Job.objects.get(pk="{job}")
    fields = {{field.attname: getattr(one, field.attname) for field in Job._meta.concrete_fields}}
    known = Tenant.objects.get(pk=one.tenant_id).jobs_numbered
    Job.objects.bulk_create(
        Job(**(fields | {{"id": uuid.uuid4(), "number": known + at, "name": f"sweep {{at:03}}"}}))
        for at in range(1, {count} + 1)
    )
    Tenant.objects.filter(pk=one.tenant_id).update(jobs_numbered=known + {count})
"""


@pytest.fixture(scope="session")
def lab(stack: Stack) -> dict[str, str]:
    return stack.lab("Sweeping lab")


@pytest.fixture(scope="session")
def client(stack: Stack, lab: dict[str, str]) -> Client:
    return stack.client(lab)


@pytest.fixture(scope="session")
def demonstrations(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    return upload_demonstrations(client, tmp_path_factory.mktemp("swept"))


@pytest.fixture(scope="session")
def swept(stack: Stack, client: Client, demonstrations: str) -> str:
    """A job with a name of markup that has succeeded, and two hundred like it."""
    job = client.jobs.submit(sft_spec(demonstrations, name=MARKUP, steps=10))
    assert client.jobs.wait(job["id"], timeout_s=180)["state"] == "succeeded"
    stack.manage("shell", "-c", COPIES.format(job=job["id"], count=MANY))
    client.jobs.describe(job["id"], tags=["paper-fig3"], note="the one that works")
    return str(job["id"])


@pytest.fixture
def jobs(log_in, stack: Stack, lab: dict[str, str], swept: str) -> Page:
    page = log_in(lab)
    page.goto(f"{stack.url}/jobs/")
    return page


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def row(page: Page, name: str):
    return page.locator("[data-row]").filter(has_text=name)


def test_filters_order_and_columns_are_in_the_address_and_back_undoes_them(jobs: Page, complaints):
    expect(jobs.locator("#count")).to_contain_text(f"{MANY + 1} jobs")
    jobs.get_by_label("Search in jobs").fill("works")
    jobs.keyboard.press("Enter")
    jobs.wait_for_url(re.compile(r"\?q=works$"))
    expect(jobs.get_by_role("link", name=MARKUP)).to_be_visible()
    expect(jobs.locator("[data-row]")).to_have_count(1)
    jobs.get_by_label("Tag", exact=True).select_option("paper-fig3")
    jobs.wait_for_url(re.compile("tag=paper-fig3"))
    jobs.go_back()
    assert query(jobs) == {"q": ["works"]}
    jobs.get_by_role("link", name="Clear", exact=True).click()
    jobs.get_by_role("link", name="Job", exact=True).click()
    jobs.wait_for_url(re.compile("sort=name"))
    expect(jobs.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    expect(jobs.locator("[data-row-link]").first).to_have_text(MARKUP)
    jobs.locator("summary", has_text="Columns").click()
    jobs.get_by_label("Cost", exact=True).uncheck()
    jobs.get_by_label("Priority", exact=True).last.check()
    jobs.get_by_role("button", name="Show these").click()
    jobs.wait_for_url(re.compile("col=priority"))
    assert "cost" not in query(jobs)["col"]
    assert query(jobs)["sort"] == ["name"]
    expect(jobs.locator("thead")).to_contain_text("Priority")
    expect(jobs.locator("thead")).not_to_contain_text("Cost")
    assert complaints == []


def test_a_selection_and_the_focus_outlive_rows_that_are_read_anew(
    jobs: Page, client: Client, demonstrations: str, complaints
):
    expect(jobs.locator("[data-live]").first).to_have_attribute("data-state", "live")
    chosen = row(jobs, "sweep 200").locator("[data-row-select]")
    chosen.check()
    job = client.jobs.submit(sft_spec(demonstrations, name="arrives live", steps=5))
    expect(row(jobs, "arrives live")).to_be_visible(timeout=SLOW_MS)
    expect(chosen).to_be_checked()
    expect(chosen).to_be_focused()
    expect(row(jobs, "sweep 200")).to_have_class("sel")
    expect(jobs.locator("[data-n]")).to_have_text("1 selected")
    jobs.reload()
    expect(jobs.locator("[data-n]")).to_have_text("1 selected")
    jobs.get_by_role("button", name="Clear", exact=True).click()
    expect(jobs.locator("[data-bar]")).to_be_hidden()
    client.jobs.wait(job["id"], timeout_s=180)
    expect(row(jobs, "arrives live").locator(".pill")).to_have_text("Succeeded", timeout=SLOW_MS)
    assert complaints == []


def test_of_two_hundred_jobs_ten_are_compared_and_an_eleventh_says_why_not(jobs: Page, stack: Stack, complaints):
    jobs.goto(f"{stack.url}/jobs/?size=200&q=sweep")
    expect(jobs.locator("[data-row]")).to_have_count(MANY)
    assert jobs.locator(".js-plotly-plot").count() == 0
    for box in jobs.locator("[data-row-select]").all()[:10]:
        box.check()
    link = jobs.locator("[data-to-compare]")
    assert len(parse_qs(urlsplit(link.get_attribute("href") or "").query)["job"]) == 10
    jobs.locator("[data-row-select]").nth(10).check()
    expect(link).to_have_attribute("aria-disabled", "true")
    expect(jobs.locator("[data-why]")).to_have_text("Up to 10 jobs can be compared; unselect 1.")
    link.click(force=True)  # as a mouse does, which does not ask whether it is enabled
    assert "/jobs/compare/" not in jobs.url
    jobs.locator("[data-row-select]").nth(10).uncheck()
    expect(jobs.locator("[data-why]")).to_be_hidden()
    link.click()
    jobs.wait_for_url("**/jobs/compare/**")
    assert len(query(jobs)["job"]) == 10
    assert complaints == []


def test_several_jobs_are_tagged_and_archived_after_a_question_and_told_one_by_one(
    jobs: Page, stack: Stack, client: Client, complaints
):
    jobs.goto(f"{stack.url}/jobs/?q=sweep+19")
    jobs.locator("[data-pick-all]").check()
    expect(jobs.locator("[data-n]")).to_have_text("10 selected")
    jobs.get_by_role("button", name="Tag", exact=True).click()
    dialog = jobs.locator("#act")
    dialog.get_by_label("Tag", exact=True).fill("No Good")
    dialog.get_by_role("button", name="Put the tag on").click()
    expect(dialog.get_by_role("alert")).to_contain_text("No Good")
    dialog.get_by_label("Tag", exact=True).fill("nineteen")
    dialog.get_by_role("button", name="Put the tag on").click()
    expect(dialog.get_by_role("heading")).to_have_text("10 of 10 jobs tagged")
    dialog.get_by_text("Back to the jobs").click()
    expect(jobs.locator("[data-row] .tag", has_text="nineteen")).to_have_count(10, timeout=SLOW_MS)
    jobs.locator("[data-row-select]").first.check()
    jobs.get_by_role("button", name="Archive", exact=True).click()
    expect(dialog).to_contain_text("nothing is deleted")
    expect(dialog.get_by_text("Keep in the list")).to_be_focused()
    jobs.keyboard.press("Escape")
    expect(jobs.locator("[data-n]")).to_have_text("1 selected")
    jobs.get_by_role("button", name="Archive", exact=True).click()
    dialog.get_by_role("button", name="Archive 1 job").click()
    expect(dialog.get_by_role("heading")).to_have_text("1 of 1 job archived")
    dialog.get_by_text("Back to the jobs").click()
    expect(jobs.locator("[data-row]")).to_have_count(9, timeout=SLOW_MS)
    assert len(list(client.jobs.list(tag="nineteen", archived="all"))) == 10
    assert complaints == []


def test_keys_move_select_and_compare(jobs: Page, complaints):
    jobs.keyboard.press("j")
    jobs.keyboard.press("x")
    jobs.keyboard.press("j")
    jobs.keyboard.press("x")
    expect(jobs.locator("[data-n]")).to_have_text("2 selected")
    jobs.keyboard.press("k")
    jobs.keyboard.press("x")
    expect(jobs.locator("[data-n]")).to_have_text("1 selected")
    jobs.keyboard.press("j")
    jobs.keyboard.press("j")
    jobs.keyboard.press("x")
    jobs.keyboard.press("c")
    jobs.wait_for_url("**/jobs/compare/**")
    assert len(query(jobs)["job"]) == 2
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_its_bar_and_its_dialog_are_accessible_in_both_themes(jobs: Page, scheme: str, complaints):
    jobs.emulate_media(color_scheme=scheme)
    jobs.locator("[data-row-select]").first.check()
    assert Axe().run(jobs).response["violations"] == []
    jobs.get_by_role("button", name="Archive", exact=True).click()
    expect(jobs.locator("#act-title")).to_be_visible()
    assert Axe().run(jobs).response["violations"] == []
    assert complaints == []


def test_on_a_phone_rows_are_cards_and_nothing_sticks_out(jobs: Page, complaints):
    jobs.set_viewport_size({"width": 390, "height": 844})
    expect(jobs.locator("thead")).to_be_hidden()
    expect(row(jobs, "sweep 200").locator(".pill")).to_be_visible()
    jobs.locator("[data-row-select]").first.check()
    expect(jobs.locator("[data-to-compare]")).to_be_visible()
    assert jobs.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    jobs.locator("summary", has_text="More").click()
    expect(jobs.get_by_label("Base model")).to_be_visible()
    assert complaints == []


def test_another_lab_sees_none_of_it(log_in, stack: Stack, charlie: dict[str, str], swept: str):
    page = log_in(charlie)
    page.goto(f"{stack.url}/jobs/?q=sweep&archived=all")
    expect(page.locator("[data-row]")).to_have_count(0)
    assert page.goto(f"{stack.url}/jobs/{swept}/").status == 404
    assert "sweep" not in page.request.get(f"{stack.url}/jobs/csv/").text()
