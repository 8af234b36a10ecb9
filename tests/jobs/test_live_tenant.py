"""`/ws/live`: which topics changed, across any cut, and not a word to other labs."""

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.test import Client

from control_plane.asgi import application
from control_plane.live.tenant_stream import TenantStream
from gpu_runtime.protocol.messages import MetricsRecorded
from jobs import notify
from tenants.models import Membership
from tenants.scope import platform_scope
from tenants.services import member_remove
from tests.jobs.test_live_stream import run
from tests.support.factories import MembershipFactory
from tests.support.jobs import make_job, make_version, relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db(transaction=True)

WAIT_S = 5.0
ALL = ["jobs", "datasets", "usage", "runtime"]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TenantStream, "coalesce_s", 0.05)


@asynccontextmanager
async def listening(browser: Client, query: str = ""):
    cookie = f"sessionid={browser.cookies['sessionid'].value}".encode()
    headers = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookie)]
    socket = WebsocketCommunicator(application, f"/ws/live{query}", headers=headers)
    try:
        connected, _ = await socket.connect(timeout=WAIT_S)
        assert connected
        yield socket
    finally:
        await socket.disconnect()


async def frame_of(socket: WebsocketCommunicator) -> dict[str, Any]:
    while (frame := json.loads(await socket.receive_from(timeout=WAIT_S)))["type"] == "ping":
        pass
    return frame


async def code_of(socket: WebsocketCommunicator) -> int:
    answer = await socket.receive_output(timeout=WAIT_S)
    while answer["type"] != "websocket.close":
        answer = await socket.receive_output(timeout=WAIT_S)
    return answer["code"]


async def test_without_a_cursor_everything_may_have_changed(alice: Person):
    async with listening(await run(alice.browser)()) as socket:
        first = await frame_of(socket)
    assert (first["type"], first["topics"]) == ("changed", ALL)


async def test_with_the_newest_cursor_nothing_has(alice: Person):
    browser = await run(alice.browser)()
    async with listening(browser) as socket:
        cursor = (await frame_of(socket))["cursor"]
    async with listening(browser, f"?after={cursor}") as socket:
        assert (await frame_of(socket))["topics"] == []
        assert await socket.receive_nothing(timeout=0.5)


async def test_a_page_brings_a_cursor_that_is_not_newer_than_what_it_shows(alice: Person):
    browser = await run(alice.browser)()
    page = (await run(browser.get)("/jobs/")).content.decode()
    cursor = page.split('data-cursor="')[1].split('"')[0]
    async with listening(browser, f"?after={cursor}") as socket:
        assert (await frame_of(socket))["topics"] == []


async def test_a_job_that_moves_is_told_at_once(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    """No poll is due for a minute: only the message of the relay can have woken it."""
    monkeypatch.setattr(TenantStream, "poll_s", 60.0)
    _, key = await run(start_job)(alice, runtime)
    async with listening(await run(alice.browser)()) as socket:
        await frame_of(socket)
        runtime.tell(*key, MetricsRecorded(step=1, values={"loss": 0.5}))
        await run(relay_all)(runtime)
        assert "jobs" in (await frame_of(socket))["topics"]


async def test_a_lost_message_costs_one_poll(alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TenantStream, "poll_s", 0.3)
    monkeypatch.setattr(notify, "wake", lambda newest: False)
    async with listening(await run(alice.browser)()) as socket:
        await frame_of(socket)
        await run(make_job)(alice)
        assert "jobs" in (await frame_of(socket))["topics"]


async def test_after_a_cut_exactly_what_changed_meanwhile_is_told(alice: Person):
    browser = await run(alice.browser)()
    async with listening(browser) as socket:
        cursor = (await frame_of(socket))["cursor"]
    await run(make_version)(alice)
    async with listening(browser, f"?after={cursor}") as socket:
        told = await frame_of(socket)
        assert told["topics"] == ["datasets"]
    async with listening(browser, f"?after={told['cursor']}") as socket:
        assert (await frame_of(socket))["topics"] == []


async def test_what_another_lab_does_tells_nothing(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(TenantStream, "poll_s", 0.2)
    async with listening(await run(charlie.browser)()) as socket:
        await frame_of(socket)
        await run(make_job)(alice)
        await run(make_version)(alice)
        assert await socket.receive_nothing(timeout=1.0)


async def test_a_bookkeeper_hears_of_money_and_jobs_only(alice: Person, monkeypatch: pytest.MonkeyPatch):
    membership = await run(lambda: MembershipFactory(tenant=alice.tenant, role="billing"))()

    def log_in() -> Client:
        browser = Client()
        browser.force_login(membership.user)
        return browser

    async with listening(await run(log_in)()) as socket:
        assert (await frame_of(socket))["topics"] == ["jobs", "usage"]


@pytest.mark.parametrize("query", ["?after=x", "?since=1", "?after=&after=", "?after=moods-0123456789abcdef"])
async def test_what_no_cursor_is_is_refused(alice: Person, query: str):
    async with listening(await run(alice.browser)(), query) as socket:
        assert await code_of(socket) == 4400


async def test_a_member_who_is_removed_is_cut_off_at_once(alice: Person, bob: Person, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TenantStream, "poll_s", 60.0)

    def remove() -> None:
        with platform_scope():
            member_remove(actor=alice.actor, membership_id=Membership.objects.get(user=bob.user).pk)

    async with listening(await run(bob.browser)()) as socket:
        await frame_of(socket)
        await run(remove)()
        assert await code_of(socket) == 4403


async def test_a_session_that_opens_another_lab_ends_the_pages_of_the_one_before(
    alice: Person, charlie: Person, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(TenantStream, "poll_s", 0.2)
    monkeypatch.setattr(TenantStream, "recheck_s", 0.0)
    await run(lambda: MembershipFactory(tenant=charlie.tenant, user=alice.user, role="viewer"))()
    browser = await run(alice.browser)()
    async with listening(browser) as socket:
        await frame_of(socket)
        await run(browser.post)("/tenant/", {"tenant": str(charlie.tenant.pk)})
        assert await code_of(socket) == 4403


async def test_an_idle_socket_is_pinged(alice: Person, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TenantStream, "ping_s", 0.0)
    monkeypatch.setattr(TenantStream, "poll_s", 0.3)
    async with listening(await run(alice.browser)()) as socket:
        await frame_of(socket)
        assert json.loads(await socket.receive_from(timeout=WAIT_S)) == {"type": "ping"}
