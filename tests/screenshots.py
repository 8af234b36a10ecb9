"""`make screenshots`: every page of the console as a picture, light and dark, wide and as on a phone.

What they show is real: the platform runs on the state folder of `make demo` (which is run first where there is none),
and two jobs of the demo are started once more, so that there is something live to see.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from joynexus_client import Client
from tests.support.stack import ROOT, Stack

Json = dict[str, Any]
THEMES = ("light", "dark")
SCREENS = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
LIVE_STEPS = 30  # of a job that is shown while it runs
SETTLE_MS = 2_500  # curves are drawn at most once a second
CHROMIUM = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One page."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A tenant of the demo, and what of it is shown."""

    email: str
    password: str
    client: Client

    def job(self, kind: str, **wanted: Any) -> Json:
        """The first one that has succeeded: the demo's own, not one that was started for a picture."""
        jobs: list[Json] = list(self.client.jobs.list(kind=kind, state="succeeded", **wanted))
        return jobs[-1]


def main() -> int:
    arguments = argparse.ArgumentParser(prog="make screenshots ARGS=", description=__doc__)
    arguments.add_argument("--state", type=Path, default=Path(os.environ.get("JOYNEXUS_STATE") or ROOT / ".state"))
    arguments.add_argument("--out", type=Path, default=ROOT / ".state" / "screenshots")
    arguments.add_argument("--only", nargs="*", default=[], help="names of pages")
    asked = arguments.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not installed: make system")
        return 1
    labs = asked.state / "demo.json"
    if not labs.exists():
        print(f"No demo in {asked.state}: running it first, about five minutes")
        environment = os.environ | {"JOYNEXUS_STATE": str(asked.state)}
        subprocess.run([sys.executable, "manage.py", "demo", "--exit"], cwd=ROOT, env=environment, check=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    with _platform(asked.state) as stack, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM)
        rows = list(json.loads(labs.read_text()).values())
        for row, choose in ((rows[0], _reinforcement), (rows[-1], _imitation)):
            lab = Lab(email=row["email"], password=row["password"], client=Client(stack.url, row["api_key"]))
            shots = [shot for shot in choose(lab) if not asked.only or shot.name in asked.only]
            _take(browser, stack, lab, shots, asked.out)
        browser.close()
    print(f"{len(list(asked.out.glob('*.png')))} pictures in {asked.out}")
    return 0


@contextmanager
def _platform(state: Path) -> Iterator[Stack]:
    stack = Stack(state)
    stack.start()
    try:
        yield stack
    finally:
        stack.stop()


def _again(lab: Lab, job: Json) -> Json:
    """The same job once more; shown when it has done some steps."""
    running: Json = lab.client.jobs.submit(lab.client.jobs.get(job["id"])["spec"] | {"cloned_from": job["id"]})
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        now = lab.client.jobs.get(running["id"])
        if now["step"] >= min(LIVE_STEPS, now["total_steps"] // 4 + 1) or now["finished_at"]:
            break
        time.sleep(0.5)
    return running


def _reinforcement(lab: Lab) -> Iterator[Shot]:
    """A lab whose policy learns in a simulator: most pages are shown as it sees them."""
    taught, judged = lab.job("rl"), lab.job("evaluation", tag="after")
    adapter = next(row for row in lab.client.jobs.artifacts(taught["id"]) if row["kind"] == "adapter")
    dataset = next(iter(lab.client.datasets.list()))
    live = _again(lab, taught)
    job, report = f"/jobs/{taught['id']}/", f"/jobs/{judged['id']}/"
    yield Shot(name="home", path="/")
    yield Shot(name="jobs", path="/jobs/")
    yield Shot(name="job-live", path=f"/jobs/{live['id']}/")
    yield Shot(name="job", path=job)
    for tab in ("rollouts", "checkpoints", "evaluation", "events", "logs", "spec"):
        yield Shot(name=f"job-{tab}", path=f"{job}?tab={tab}")
    yield Shot(name="evaluation", path=f"{report}?tab=evaluation")
    yield Shot(name="rollouts", path=f"{report}?tab=rollouts")
    chosen = "&".join(f"job={row['id']}" for row in (taught, live, lab.job("sft")))
    yield Shot(name="compare", path=f"/jobs/compare/?{chosen}")
    yield Shot(name="new-job", path=f"/jobs/new/?from={taught['id']}")
    yield Shot(name="datasets", path="/datasets/")
    yield Shot(name="dataset", path=f"/datasets/{dataset['id']}/")
    yield Shot(name="upload", path="/datasets/upload/")
    yield Shot(name="policies", path="/policies/")
    yield Shot(name="policy", path=f"/policies/{adapter['id']}/")
    yield Shot(name="usage", path="/usage/")
    yield Shot(name="invoices", path="/billing/invoices/")
    yield Shot(name="runtime", path="/runtime/")
    for section in ("members", "keys", "webhooks", "audit", "appearance"):
        yield Shot(name=f"settings-{section}", path=f"/settings/{section}/")


def _imitation(lab: Lab) -> Iterator[Shot]:
    """A lab that trains on demonstrations."""
    yield Shot(name="job-sft", path=f"/jobs/{lab.job('sft')['id']}/")
    yield Shot(name="new-job-empty", path="/jobs/new/")


def _take(browser: Browser, stack: Stack, lab: Lab, shots: list[Shot], out: Path) -> None:
    for theme in THEMES:
        for screen, viewport in SCREENS.items():
            context = browser.new_context(
                viewport=viewport, color_scheme=theme, is_mobile=screen == "phone", has_touch=screen == "phone"
            )
            page = context.new_page()
            _log_in(page, stack.url, lab)
            for shot in shots:
                page.goto(stack.url + shot.path)
                page.wait_for_timeout(SETTLE_MS)
                page.screenshot(path=out / f"{shot.name}-{screen}-{theme}.png")
            context.close()


def _log_in(page: Page, url: str, lab: Lab) -> None:
    page.goto(f"{url}/login/")
    page.get_by_label("E-mail").fill(lab.email)
    page.get_by_label("Password").fill(lab.password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda address: "/login" not in address)


if __name__ == "__main__":
    sys.exit(main())
