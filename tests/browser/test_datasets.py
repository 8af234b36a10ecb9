"""Datasets in Chromium: an upload that is cut, episodes that play, statistics, deleting, other people's data."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Response, Route, expect

from tests.support.demonstrations import make_dataset
from tests.support.stack import Stack

pytestmark = pytest.mark.browser

SLOW_MS = 60_000
NAME = '<img src=x onerror="alert(1)">'
CHUNK_BYTES = 16_384
READY = """() => {
  const videos = [...document.querySelectorAll("[data-cams] video")];
  const drawn = document.querySelector("[data-curves] .main-svg");
  return videos.length === 2 && videos.every((video) => video.readyState >= 2) && drawn !== null;
}"""
NOW = """() => {
  const videos = [...document.querySelectorAll("[data-cams] video")];
  const line = document.querySelector("[data-head]").getBoundingClientRect();
  const axis = document.querySelector("[data-curves]")._fullLayout.xaxis;
  const begin = document.querySelector("[data-curves]").getBoundingClientRect().left + axis._offset;
  return {frame: Number(document.querySelector("[data-scrub]").value), times: videos.map((video) => video.currentTime),
          paused: videos.every((video) => video.paused), line_s: axis.p2l(line.left - begin)};
}"""
HZ = 10.0  # of the demonstrations


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve episodes of two cameras, of which one instruction has half; some dozens of chunks."""
    folder = tmp_path_factory.mktemp("recording")
    make_dataset(folder / "data", episodes=12, cameras=2, state_dim=5, action_dim=4, image_size=64, length=20)
    return Path(shutil.make_archive(str(folder / "recording"), "zip", folder / "data"))


@pytest.fixture(scope="module")
def recording(stack: Stack, alice: dict[str, str], archive: Path) -> dict[str, Any]:
    """The same, uploaded through the API; its name tries to be markup."""
    client = stack.client(alice)
    version = client.datasets.upload(archive, name=NAME)
    return dict(client.datasets.wait_ready(version["id"], timeout_s=120))


def opened(page: Page, stack: Stack, recording: dict[str, Any], query: str = "") -> Page:
    page.goto(f"{stack.url}/datasets/{recording['dataset']}/{query}")
    page.wait_for_function(READY, timeout=SLOW_MS)
    return page


def small_chunks(page: Page) -> None:
    """The page as a server with a smaller limit would send it."""

    def change(route: Route) -> None:
        answer = route.fetch()
        body = re.sub(r'"chunkBytes": \d+', f'"chunkBytes": {CHUNK_BYTES}', answer.text())
        route.fulfill(response=answer, body=body)

    page.route(re.compile(r"/datasets/upload/$"), change)


def test_an_upload_that_is_cut_goes_on_after_a_reload_where_the_server_is(
    log_in, stack: Stack, charlie, archive: Path, complaints
):
    page = log_in(charlie)
    small_chunks(page)
    page.goto(f"{stack.url}/datasets/upload/")
    chunks: list[int] = []

    def cut_after_three(route: Route) -> None:
        if route.request.method != "PATCH":
            route.continue_()
            return
        chunks.append(int(route.request.headers["upload-offset"]))
        route.continue_() if len(chunks) <= 3 else route.abort()

    page.route("**/api/v1/uploads/*", cut_after_three)
    page.get_by_label("Archive", exact=True).set_input_files(archive)
    expect(page.locator("[data-fits]")).to_contain_text("free")  # the quota, before the first byte
    page.get_by_label("Name of the dataset").fill(NAME)
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("[data-note]")).to_contain_text("connection was lost", timeout=SLOW_MS)
    assert chunks[:3] == [0, CHUNK_BYTES, 2 * CHUNK_BYTES]
    page.unroute("**/api/v1/uploads/*")
    page.on("dialog", lambda dialog: dialog.accept())
    page.reload()
    row = page.locator("[data-upload-row]")
    expect(row).to_contain_text(NAME)
    chunks.clear()
    page.on(
        "request", lambda sent: chunks.append(int(sent.headers["upload-offset"])) if sent.method == "PATCH" else None
    )
    row.locator("input[type=file]").set_input_files(archive)
    expect(page.locator("[data-pill]")).to_have_text("Ready", timeout=SLOW_MS)
    assert chunks[0] == 3 * CHUNK_BYTES
    assert page.locator("main img").count() == 0
    page.get_by_role("link", name="Open the dataset").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME)
    assert [text for text in complaints if "ERR_FAILED" not in text] == []  # the requests that were cut


def test_another_file_is_refused_before_a_byte_is_sent_and_an_abort_frees_its_space(
    log_in, stack: Stack, charlie, archive: Path, tmp_path: Path
):
    page = log_in(charlie)
    small_chunks(page)
    page.goto(f"{stack.url}/datasets/upload/")
    page.route(
        "**/api/v1/uploads/*", lambda route: route.abort() if route.request.method == "PATCH" else route.continue_()
    )
    page.get_by_label("Archive", exact=True).set_input_files(archive)
    page.get_by_label("Name of the dataset").fill("never whole")
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("[data-note]")).to_be_visible(timeout=SLOW_MS)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Go on", exact=True)).to_be_visible()
    page.reload()
    other = tmp_path / "other.zip"
    content = bytearray(archive.read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    page.locator("[data-upload-row] input[type=file]").set_input_files(other)
    expect(page.locator("[data-fault]")).to_contain_text("This is another file: its size is the same", timeout=SLOW_MS)
    other.write_bytes(b"short")
    page.locator("[data-upload-row] input[type=file]").set_input_files(other)
    expect(page.locator("[data-fault]")).to_contain_text("This is another file: it has 5", timeout=SLOW_MS)
    page.locator("[data-drop]").click()
    question = page.get_by_role("dialog", name="Abort the upload")
    question.get_by_role("button", name="Keep it").click()
    expect(page.locator("[data-upload-row]")).to_have_count(1)
    page.locator("[data-drop]").click()
    question.get_by_role("button", name="Abort the upload").click()
    expect(page.locator("[data-upload-row]")).to_have_count(0)
    assert "reserved" not in page.locator("main").inner_text()


def test_an_episode_plays_in_both_cameras_with_the_line_in_its_curves(
    log_in, stack: Stack, alice, recording, complaints
):
    page = log_in(alice)
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer) if "/videos/" in answer.url else None)
    opened(page, stack, recording)
    assert [answer.status for answer in answers[:2]] == [206, 206]
    assert all("content-range" in answer.headers for answer in answers[:2])
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function("() => Number(document.querySelector('[data-scrub]').value) >= 4", timeout=SLOW_MS)
    page.get_by_role("button", name="Pause", exact=True).click()
    now = page.evaluate(NOW)
    assert now["paused"]
    assert now["line_s"] == pytest.approx(now["frame"] / HZ, abs=0.02)
    assert now["times"] == pytest.approx([(now["frame"] + 0.5) / HZ] * 2, abs=0.02)
    assert complaints == []


def test_a_drag_in_the_curves_and_arrow_keys_seek_the_videos_and_the_address_keeps_the_place(
    log_in, stack: Stack, alice, recording
):
    page = opened(log_in(alice), stack, recording, "?episode=3&frame=7")
    assert (page.evaluate(NOW)["frame"], page.locator("[data-number]").inner_text()) == (7, "3")
    page.locator("body").press("ArrowRight")
    page.locator("body").press("ArrowRight")
    page.locator("body").press("Shift+ArrowLeft")
    assert page.evaluate(NOW)["frame"] == 0
    track = page.locator("[data-track]").bounding_box()
    assert track is not None
    page.mouse.move(track["x"] + 100, track["y"] + 60)
    page.mouse.down()
    page.mouse.move(track["x"] + 300, track["y"] + 60, steps=4)
    page.mouse.up()
    now = page.evaluate(NOW)
    assert 3 < now["frame"] < 15
    assert now["line_s"] == pytest.approx(now["frame"] / HZ, abs=0.02)
    assert now["times"] == pytest.approx([(now["frame"] + 0.5) / HZ] * 2, abs=0.02)
    expect(page).to_have_url(re.compile(rf"episode=3&frame={now['frame']}$"))
    page.reload()
    page.wait_for_function(READY, timeout=SLOW_MS)
    assert page.evaluate(NOW)["frame"] == now["frame"]


def test_episodes_are_chosen_by_instruction_and_one_after_the_other(log_in, stack: Stack, alice, recording):
    page = opened(log_in(alice), stack, recording)
    strip = page.locator("[data-list] button")
    expect(strip).to_have_count(12)
    page.get_by_label("Instruction").select_option(index=1)
    expect(strip).to_have_count(6, timeout=SLOW_MS)
    strip.nth(1).click()
    chosen = strip.nth(1).get_attribute("data-index")
    expect(page.locator("[data-number]")).to_have_text(str(chosen), timeout=SLOW_MS)
    page.get_by_role("button", name="Next episode").click()
    expect(page.locator("[data-number]")).to_have_text(str(strip.nth(2).get_attribute("data-index")), timeout=SLOW_MS)
    page.get_by_role("button", name="State", exact=True).click()
    expect(page.locator("[data-readout] li")).to_have_count(5)


def test_statistics_are_drawn_for_every_dimension(log_in, stack: Stack, alice, recording, complaints):
    page = opened(log_in(alice), stack, recording)
    figures = page.locator("#spread [data-figure]")
    expect(figures).to_have_count(9, timeout=SLOW_MS)  # four of the action, five of the state
    figures.first.scroll_into_view_if_needed()
    expect(figures.first.locator(".bars path").first).to_be_attached(timeout=SLOW_MS)
    expect(page.locator("#lengths .bars path").first).to_be_attached(timeout=SLOW_MS)
    expect(page.locator("#spread svg.bar")).to_have_count(9)
    assert complaints == []


def test_what_a_job_learned_from_is_not_deleted_and_says_why(log_in, stack: Stack, alice, version_id, finished_job):
    client = stack.client(alice)
    dataset = client.datasets.version(version_id)["dataset"]
    page = log_in(alice)
    page.goto(f"{stack.url}/datasets/{dataset}/")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It cannot be deleted")
    expect(dialog.get_by_role("link").first).to_have_attribute("href", re.compile(r"^/jobs/[0-9a-f-]{36}/$"))
    expect(dialog.get_by_role("button", name="Delete the dataset")).to_have_count(0)
    assert dialog.locator("img").count() == 0
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_an_unused_dataset_is_deleted_after_a_question(log_in, stack: Stack, alice, archive: Path):
    client = stack.client(alice)
    version = client.datasets.wait_ready(client.datasets.upload(archive, name="to go")["id"], timeout_s=120)
    page = log_in(alice)
    page.goto(f"{stack.url}/datasets/{version['dataset']}/")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete the dataset").click()
    expect(page).to_have_url(f"{stack.url}/datasets/")
    expect(page.get_by_role("link", name="to go", exact=True)).to_have_count(0)


def test_another_labs_dataset_is_a_missing_page_and_a_missing_video(log_in, stack: Stack, charlie, recording):
    page = log_in(charlie)
    for path in (f"/datasets/{recording['dataset']}/", f"/datasets/{recording['dataset']}/spread/"):
        answer = page.goto(f"{stack.url}{path}")
        assert answer is not None
        assert answer.status == 404
    camera = recording["summary"]["schema"]["cameras"][0]["key"]
    video = page.request.get(f"{stack.url}/api/v1/dataset-versions/{recording['id']}/episodes/0/videos/{camera}")
    assert video.status == 404


def test_the_list_follows_what_happens_without_a_reload(log_in, stack: Stack, alice, archive: Path, recording):
    page = log_in(alice)
    page.goto(f"{stack.url}/datasets/")
    expect(page.locator("tr[data-row]").filter(has_text=NAME)).to_have_count(1)
    stack.client(alice).datasets.upload(archive, name="arrived meanwhile")
    row = page.locator("tr[data-row]").filter(has_text="arrived meanwhile")
    expect(row).to_have_count(1, timeout=SLOW_MS)
    expect(row.locator(".pill")).to_have_text("Ready", timeout=SLOW_MS)
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_are_accessible_and_fit_the_screen(log_in, stack: Stack, alice, recording, scheme, width, complaints):
    page = log_in(alice)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("/datasets/", "/datasets/upload/", f"/datasets/{recording['dataset']}/"):
        page.goto(f"{stack.url}{path}")
        if recording["dataset"] in path:
            page.wait_for_function(READY, timeout=SLOW_MS)
            expect(page.locator("#spread [data-figure]")).to_have_count(9, timeout=SLOW_MS)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), path
        found = [(issue["id"], issue["nodes"][0]["html"][:200]) for issue in Axe().run(page).response["violations"]]
        assert found == [], path
    assert complaints == []
