"""One job's page in Chromium: live through cuts, honest about time and cancelling, its log, notes and ways out."""

import re
import zipfile
from datetime import UTC, datetime, timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from playwright.sync_api import expect

from tests.browser.watched import open_job, running_job

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
TABS = ("charts", "rollouts", "checkpoints", "evaluation", "events", "logs", "spec")
MARKUP = "<img src=x onerror=alert(1)>"


def test_a_finished_job_shows_state_cost_and_what_it_made(log_in, stack, alice, finished_job, complaints, tmp_path):
    page = open_job(log_in(alice), stack, finished_job)
    expect(page.get_by_role("heading", level=1)).to_contain_text(MARKUP)
    expect(page.locator(".crumb")).to_contain_text(re.compile(r"J-\d+"))
    expect(page.locator("[data-live]")).to_have_text("Ended")
    expect(page.locator("[data-state-now]")).to_contain_text("40 of 40 steps")
    expect(page.locator('[data-count="loss"]')).to_contain_text("40 points")
    expect(page.locator("[data-cost]")).to_contain_text("€")
    with pytest.raises(PlaywrightTimeout):  # coming back to the tab of an ended job opens no stream
        with page.expect_websocket(timeout=1500):
            page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
    with page.expect_download() as waiting:
        page.locator("[data-made] a[href$='/download']").click()
    waiting.value.save_as(tmp_path / "adapter.zip")
    assert any(name.endswith("adapter.safetensors") for name in zipfile.ZipFile(tmp_path / "adapter.zip").namelist())
    assert complaints == []


def test_another_tenants_job_is_a_missing_page_in_every_tab(log_in, stack, charlie, finished_job):
    page = log_in(charlie)
    for tab in TABS:
        answer = page.goto(f"{stack.url}/jobs/{finished_job}/?tab={tab}")
        assert answer is not None
        assert answer.status == 404
        assert MARKUP not in page.content()


def test_durations_are_right_though_the_browsers_clock_is_two_hours_off(log_in, stack, alice, version_id):
    job = running_job(stack, alice, version_id, "clock")
    page = log_in(alice)
    page.clock.set_system_time(datetime.now(UTC) + timedelta(hours=2))
    open_job(page, stack, job, "spec")
    assert page.evaluate("() => Date.now()") > (datetime.now(UTC) + timedelta(minutes=110)).timestamp() * 1000
    elapsed = page.locator("[data-elapsed]")
    expect(elapsed).to_have_text(re.compile(r"^(\d min )?\d+\s(s|min.*) so far$"))
    assert "h" not in elapsed.inner_text()
    first = elapsed.inner_text()
    expect(elapsed).not_to_have_text(first, timeout=10_000)
    assert "h" not in elapsed.inner_text()
    expect(page.locator("[data-left]")).to_contain_text("left, done near", timeout=SLOW_MS)
    stack.client(alice).jobs.cancel(job)


def test_cancelling_is_asked_for_once_and_true_until_confirmed_without_losing_ones_place(
    log_in, stack, alice, version_id, complaints
):
    job = running_job(stack, alice, version_id, "to cancel")
    page = open_job(log_in(alice), stack, job, "spec")
    page.get_by_role("button", name="Cancel job").click()
    dialog = page.get_by_role("dialog", name="Cancel to cancel?")
    expect(dialog).to_contain_text("stops at the next microbatch")
    expect(dialog).to_contain_text("Cost so far is €")
    expect(dialog.get_by_role("button", name="Keep it running")).to_be_focused()
    dialog.get_by_role("button", name="Cancel job").click()
    expect(page.locator(".pill.cancelled").first).to_be_visible(timeout=SLOW_MS)
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
    expect(page.locator("[data-events] li.cancelled")).to_be_visible(timeout=SLOW_MS)
    told = " ".join(page.locator("[data-events] li").all_inner_texts())
    assert re.findall(r"Cancelled|Cancelling", told) == ["Cancelled", "Cancelling"]
    assert complaints == []


def test_when_a_job_ends_the_page_changes_what_changed_and_stays_where_it_is(log_in, stack, alice, version_id):
    job = running_job(stack, alice, version_id, "ends alone")
    page = open_job(log_in(alice), stack, job, "spec")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live", timeout=SLOW_MS)
    page.evaluate("() => { window.untouched = true; scrollTo(0, 400); }")
    stack.client(alice).jobs.cancel(job)
    expect(page.locator("[data-live]")).to_have_text("Ended", timeout=SLOW_MS)
    expect(page.get_by_role("link", name="Run again")).to_be_attached(timeout=SLOW_MS)
    expect(page.locator("[data-rate]")).to_contain_text("In all")
    assert page.evaluate("() => window.untouched") is True
    assert page.evaluate("() => scrollY") == 400


def test_a_note_is_written_previewed_and_never_overwrites_a_colleagues(log_in, stack, alice, finished_job, complaints):
    page = open_job(log_in(alice), stack, finished_job, "spec")
    page.get_by_text("Write a note").click()
    field = page.get_by_role("textbox", name="Note, Markdown")
    field.fill("**Best so far** <b onclick=alert(1)>x</b>")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#note-preview strong")).to_have_text("Best so far")
    page.get_by_role("button", name="Save note").click()
    expect(page.locator("#note > .pad > .md strong")).to_have_text("Best so far")
    assert page.locator("#note b").count() == 0
    page.locator("#note-edit").click()
    page.get_by_role("textbox", name="Note, Markdown").fill("mine")
    answer = page.request.patch(
        f"{stack.url}/api/v1/jobs/{finished_job}",
        data={"note": "theirs"},
        headers={"Authorization": f"Bearer {alice['api_key']}"},
    )
    assert answer.ok
    complaints.clear()
    page.get_by_role("button", name="Save note").click()
    expect(page.get_by_role("alert")).to_contain_text("Somebody else changed this note")
    expect(page.locator("#note > .pad > .md")).to_have_text("theirs")
    expect(page.get_by_role("textbox", name="Note, Markdown")).to_have_value("mine")
    page.get_by_role("button", name="Save note").click()
    expect(page.locator("#note > .pad > .md")).to_have_text("mine")
    assert [text for text in complaints if "412" not in text] == []


def test_a_job_is_renamed_in_its_head_by_keyboard(log_in, stack, alice, finished_job, complaints):
    page = open_job(log_in(alice), stack, finished_job, "spec")
    heading, before = page.get_by_role("heading", level=1), page.title().removesuffix(" · JoyNexus")
    for name in (f"{before} again", before):
        page.locator("#name-edit").press("Enter")
        page.get_by_label("Name of this job").fill(f"  {name} ")
        page.get_by_label("Name of this job").press("Enter")
        expect(heading).to_have_text(name)
        expect(page).to_have_title(f"{name} · JoyNexus")
        expect(page.locator("#name-edit")).to_be_focused()
    page.reload()
    expect(heading).to_have_text(before)
    assert complaints == []


def test_tags_come_and_go_in_place(log_in, stack, alice, finished_job):
    page = open_job(log_in(alice), stack, finished_job, "spec")
    page.get_by_role("textbox", name="Add a tag").fill("night")
    page.get_by_role("textbox", name="Add a tag").press("Enter")
    expect(page.get_by_role("button", name="Remove tag night")).to_be_visible()
    page.get_by_role("textbox", name="Add a tag").fill("No Tag!")
    page.get_by_role("textbox", name="Add a tag").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("A tag begins with")
    page.get_by_role("button", name="Remove tag night").click()
    expect(page.get_by_role("button", name="Remove tag night")).to_have_count(0)


def test_an_ended_job_is_run_again_after_its_price_was_told_and_compared_with_the_new_one(
    log_in, stack, alice, finished_job
):
    page = open_job(log_in(alice), stack, finished_job, "events")
    page.get_by_role("link", name="Run again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Reserved while it lives")
    expect(dialog).to_contain_text("€")
    dialog.get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: "/jobs/" in url and finished_job not in url)
    page.get_by_role("link", name="differences").click()
    expect(page.get_by_text("The same specification as")).to_be_visible()


def test_a_link_is_copied_and_says_who_can_open_it(context, log_in, stack, alice, finished_job):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = open_job(log_in(alice), stack, finished_job, "logs")
    page.get_by_role("button", name="Share").click()
    expect(page.get_by_role("dialog")).to_contain_text("Everybody in Alice lab")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".toast")).to_have_text("Copied")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == f"{stack.url}/jobs/{finished_job}/?tab=logs"


def test_the_page_of_a_job_is_left_by_files(log_in, stack, alice, finished_job):
    page = open_job(log_in(alice), stack, finished_job, "events")
    page.locator(".head summary", has_text="Export").click()
    files = {"Metrics, every point (CSV)": "attempt,step", "Specification (JSON)": "{", "Log (text)": "20"}
    for name, start in files.items():
        with page.expect_download() as waiting:
            page.get_by_role("link", name=name).click()
        assert waiting.value.path().read_text().startswith(start)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_tab_is_accessible_and_fits_the_screen(log_in, stack, alice, finished_job, complaints, scheme, width):
    page = log_in(alice)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    for tab in TABS:
        open_job(page, stack, finished_job, tab)
        page.wait_for_load_state("networkidle")
        found = Axe().run(page).response["violations"]
        assert [f"{tab} {v['id']}: {v['nodes'][0]['html'][:120]}" for v in found] == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert complaints == []
