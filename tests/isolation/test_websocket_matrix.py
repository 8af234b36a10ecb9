"""Every WebSocket route x everybody. Sockets know cookies only; a foreign job is closed like a missing one."""

import uuid
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.utils import timezone

from control_plane.asgi import application
from tests.support.everybody import cast_of
from tests.support.factories import make_key
from tests.support.jobs import make_job
from tests.support.routes import websocket_routes
from tests.support.story import Story, make_story

pytestmark = pytest.mark.django_db(transaction=True)

WAIT_S = 5.0
OPEN, CLOSED, REFUSED = "open", 4404, "refused"  # rows come; closed with a code; no handshake
PEOPLE = ("owner", "researcher", "viewer", "billing", "stranger")
KEYS = ("live key", "wrong-scope key", "expired key")

# Columns: as PEOPLE; anonymous visitors and whoever brings only an API key are closed everywhere.
SOCKETS = {
    "/ws/live": (OPEN,) * 5,  # of one's own tenant
    "/ws/jobs/<uuid:job_id>": (OPEN, OPEN, OPEN, OPEN, CLOSED),
    "/^.*$": (REFUSED,) * 5,
}


@asynccontextmanager
async def socket_at(path: str, headers: list[tuple[bytes, bytes]]):
    own = [(b"origin", b"http://localhost"), (b"host", b"localhost"), *headers]
    socket = WebsocketCommunicator(application, path, headers=own)
    try:
        yield socket
    finally:
        await socket.disconnect()


async def outcome(path: str, headers: list[tuple[bytes, bytes]]) -> Any:
    async with socket_at(path, headers) as socket:
        connected, _ = await socket.connect(timeout=WAIT_S)
        if not connected:
            return REFUSED
        first = await socket.receive_output(timeout=WAIT_S)
        return OPEN if first["type"] == "websocket.send" else first["code"]


def prepared() -> tuple[Story, str, dict[str, list[tuple[bytes, bytes]]]]:
    """The story, a path per route with Alice's job, and the headers of every caller."""
    story = make_story()
    cast = cast_of(story)
    job = make_job(story.alice)
    headers: dict[str, list[tuple[bytes, bytes]]] = {"anonymous": []}
    for who in PEOPLE:
        cookie = cast.person(who).browser().cookies["sessionid"].value
        headers[who] = [(b"cookie", f"sessionid={cookie}".encode())]
    fields = ({}, {"scopes": ["runtime:read"]}, {"expires_at": timezone.now()})
    for who, own in zip(KEYS, fields, strict=True):
        text = make_key(story.alice.tenant, "owner", story.alice.user, **own)[1]
        headers[who] = [(b"authorization", f"Bearer {text}".encode())]
    return story, str(job.pk), headers


def test_every_socket_is_declared():
    assert websocket_routes() == list(SOCKETS)


@pytest.mark.parametrize("route", SOCKETS)
async def test_everybody_gets_the_declared_outcome(route: str):
    _, job_id, headers = await sync_to_async(prepared)()
    path = route.replace("<uuid:job_id>", job_id).replace("^.*$", "ws/anything")
    told = {who: await outcome(path, own) for who, own in headers.items()}
    outside = REFUSED if SOCKETS[route][0] == REFUSED else CLOSED
    people = dict(zip(PEOPLE, SOCKETS[route], strict=True))
    assert told == {"anonymous": outside, **people, **dict.fromkeys(KEYS, outside)}


async def test_a_foreign_job_is_closed_like_a_missing_one():
    _, job_id, headers = await sync_to_async(prepared)()
    outcomes = []
    for wanted in (job_id, str(uuid.uuid4())):
        async with socket_at(f"/ws/jobs/{wanted}", headers["stranger"]) as socket:
            handshake = await socket.connect(timeout=WAIT_S)
            outcomes.append((handshake, await socket.receive_output(timeout=WAIT_S)))
    assert outcomes[0] == outcomes[1]


async def test_a_token_in_the_address_opens_nothing():
    story, job_id, _ = await sync_to_async(prepared)()
    for query in (f"?token={story.alice.key}", f"?key={story.alice.key}"):
        assert await outcome(f"/ws/jobs/{job_id}{query}", []) in {4400, 4404}
