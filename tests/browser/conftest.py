"""A real Chromium in front of a real platform. No ORM here: the browser's event loop forbids it."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, sync_playwright

from tests.support.stack import Stack, sft_spec, upload_demonstrations

CHROMIUM_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
# plotly.min.js brings one style element of its own (for maps); the policy refuses it, without visible effect.
KNOWN_STYLE_REPORT = "sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o="
# A part was being read when the page was left: htmx says so on the console. An answer that is an error is another.
LEFT_WHILE_READING = ("htmx:afterRequest, ", "htmx:sendError, ", "htmx:sendAbort, ")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    platform = Stack(tmp_path_factory.mktemp("platform"))
    platform.start()
    yield platform
    platform.stop()


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed (deploy/system-packages.sh)")
    running = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
    yield running
    running.close()


@pytest.fixture(scope="session")
def alice(stack: Stack) -> dict[str, str]:
    return stack.lab("Alice lab")


@pytest.fixture(scope="session")
def charlie(stack: Stack) -> dict[str, str]:
    return stack.lab("Charlie lab")


@pytest.fixture(scope="session")
def version_id(stack: Stack, alice: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return upload_demonstrations(stack.client(alice), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def finished_job(stack: Stack, alice: dict[str, str], version_id: str) -> str:
    """A short job that has succeeded; its name tries to be markup."""
    client = stack.client(alice)
    job = client.jobs.submit(sft_spec(version_id, name="<img src=x onerror=alert(1)>", steps=40))
    assert client.jobs.wait(job["id"], timeout_s=120)["state"] == "succeeded"
    return str(job["id"])


class Complaints(list[str]):
    """What the browser complained of, but for the reports we know."""

    def hear(self, message: ConsoleMessage) -> None:
        known = KNOWN_STYLE_REPORT in message.text or message.text.startswith(LEFT_WHILE_READING)
        if message.type in {"error", "warning"} and not known:
            self.append(message.text)


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    fresh = browser.new_context(viewport={"width": 1440, "height": 900})
    yield fresh
    fresh.close()


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints) -> Page:
    opened = context.new_page()
    opened.on("console", complaints.hear)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    return opened


@pytest.fixture
def log_in_at(page: Page):
    def go(platform: Stack, lab: dict[str, str]) -> Page:
        page.goto(f"{platform.url}/login/")
        page.get_by_label("E-mail").fill(lab["email"])
        page.get_by_label("Password").fill(lab["password"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{platform.url}/")
        return page

    return go


@pytest.fixture
def log_in(log_in_at, stack: Stack):
    return lambda lab: log_in_at(stack, lab)
