"""`/ws/jobs/<id>`: whoever loses access is cut off at once."""

import asyncio

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from control_plane.live.consumers import JobStream
from tenants.access_changes import access_changed
from tenants.models import Membership
from tenants.scope import platform_scope
from tenants.services import member_remove
from tests.jobs.test_live_stream import WAIT_S, reader, rows_until, run
from tests.support.factories import UserFactory
from tests.support.jobs import make_job
from tests.support.story import Person

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_member_who_is_removed_is_cut_off(alice: Person, bob: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobStream, "recheck_s", 0.0)
    monkeypatch.setattr(JobStream, "poll_s", 0.4)
    job = await run(make_job)(alice)

    def remove() -> None:
        with platform_scope():
            Membership.objects.filter(user=bob.user).delete()

    async with reader(bob, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        await rows_until(socket, lambda frames: len(frames) == 1)
        await run(remove)()
        answer = await socket.receive_output(timeout=WAIT_S)
        while answer["type"] != "websocket.close":
            answer = await socket.receive_output(timeout=WAIT_S)
        assert answer["code"] == 4403


@pytest.mark.parametrize(
    "act", ["remove", "lower the role", "end the sessions", "change the password", "log out", "close the account"]
)
async def test_a_change_of_access_cuts_the_socket_at_once(
    alice: Person, bob: Person, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """No re-check is due for a minute: only the message can have cut it."""
    monkeypatch.setattr(JobStream, "poll_s", 30.0)
    job = await run(make_job)(alice)

    def end_access() -> None:
        with platform_scope():
            membership = Membership.objects.get(user=bob.user)
            if act == "remove":
                member_remove(actor=alice.actor, membership_id=membership.pk)
            elif act == "lower the role":
                Membership.objects.filter(pk=membership.pk).update(role="nobody")
                access_changed([bob.user.pk])
            elif act == "end the sessions":
                Session.objects.all().delete()
                access_changed([bob.user.pk])
            elif act == "log out":
                browser = Client()
                browser.cookies["sessionid"] = Session.objects.get().pk
                assert browser.post("/logout/").status_code == 302
            elif act == "close the account":
                operator = Client()
                operator.force_login(UserFactory(is_staff=True, is_superuser=True))
                page = f"/admin/tenants/user/{bob.user.pk}/change/"
                assert operator.post(page, {"reason": "He left."}).status_code == 302
            else:
                bob.user.set_password("another horse")
                bob.user.save()
                access_changed([bob.user.pk])

    async with reader(bob, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        await rows_until(socket, lambda frames: len(frames) == 1)
        await asyncio.sleep(0.5)  # until it listens
        await run(end_access)()
        answer = await socket.receive_output(timeout=WAIT_S)
        assert (answer["type"], answer["code"]) == ("websocket.close", 4403)
