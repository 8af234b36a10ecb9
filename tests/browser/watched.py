"""How browser tests watch a job: have it say something, open its page, cut the page's line."""

import re
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

from tests.support.stack import Stack, sft_spec

NUMBERS = "(lines) => lines.map((line) => Number(line.dataset.seq))"
SAY = """
from jobs.models import Job
from jobs.services.transition import job_log
from tenants.scope import platform_scope
with platform_scope():
    job = Job.objects.select_related("tenant").get(pk="{job}")
for number in range({first}, {last} + 1):
    job_log(job, level=("info", "warning", "error")[number % 3], message=f"line {{number}} of the gripper")
"""


def say(stack: Stack, job: str, first: int, last: int) -> None:
    """Have the platform write log lines into a job's stream, as it does itself when something is worth a word."""
    stack.manage("shell", "-c", SAY.format(job=job, first=first, last=last))


def open_job(page: Page, stack: Stack, job: str, tab: str = "") -> Page:
    page.goto(f"{stack.url}/jobs/{job}/{f'?tab={tab}' if tab else ''}")
    return page


def seqs(page: Page, selector: str) -> list[int]:
    return page.locator(selector).evaluate_all(NUMBERS)


def running_job(stack: Stack, lab: dict[str, str], version_id: str, name: str, **fields: Any) -> str:
    """A job that runs for minutes, and does so already."""
    client = stack.client(lab)
    job = client.jobs.submit(sft_spec(version_id, name=name, steps=20_000) | fields)
    for event in client.jobs.follow(job["id"]):
        if event["data"].get("state") in ("running", "failed"):
            break
    return str(job["id"])


class Line:
    """The page's sockets, which can be cut: while they are, every new one is refused."""

    def __init__(self, page: Page) -> None:
        self.cut_now = False
        self.open: list[WebSocketRoute] = []
        page.route_web_socket(re.compile(r"/ws/"), self._route)

    def _route(self, socket: WebSocketRoute) -> None:
        if self.cut_now:
            socket.close(code=1012)
            return
        socket.connect_to_server()
        self.open.append(socket)

    def cut(self) -> None:
        self.cut_now = True
        for socket in self.open:
            socket.close(code=1012)
        self.open.clear()

    def mend(self) -> None:
        self.cut_now = False
