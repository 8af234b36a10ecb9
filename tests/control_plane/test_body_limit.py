"""Bodies that are too large are refused while they arrive."""

import json

import pytest
from asgiref.sync import sync_to_async

from control_plane.body_limit import CHUNK_PREFIX, UPLOAD_PATH, BodyLimit
from control_plane.known_caller import is_known
from tests.support.story import make_story

KEY = (b"authorization", b"Bearer jnx")
WRONG_KEY = (b"authorization", b"Bearer xyz")


async def send(
    path: str, sizes: list[int], *headers: tuple[bytes, bytes], method: str = "POST"
) -> tuple[int, dict, int]:
    """(status, body, bytes the application got) for parts of these sizes; limits 100, 500 and 1,000 (+ 1 MiB)."""
    chunks = [{"type": "http.request", "body": b"x" * n, "more_body": True} for n in sizes]
    chunks.append({"type": "http.request", "body": b"", "more_body": False})
    seen, sent = 0, []

    async def application(scope, receive, send):
        nonlocal seen
        while (message := await receive())["more_body"]:
            seen += len(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive():
        return chunks.pop(0)

    async def record(message):
        sent.append(message)

    async def is_known(scope):
        return KEY in scope["headers"]

    limited = BodyLimit(application, is_known=is_known, max_bytes=100, upload_max_bytes=1_000, chunk_max_bytes=500)
    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    await limited(scope, receive, record)
    return sent[0]["status"], json.loads(sent[1]["body"]), seen


async def test_a_body_within_the_limit_passes():
    assert await send("/api/v1/keys", [60, 40]) == (200, {}, 100)


async def test_a_body_over_the_limit_is_cut_off_where_it_crosses():
    status, body, seen = await send("/api/v1/keys", [60, 41, 60])
    assert (status, body["type"], seen) == (413, "urn:joynexus:problem:body-too-large", 60)
    assert len(body["request_id"]) == 32


async def test_an_announced_length_over_the_limit_is_refused_unread():
    status, _, seen = await send("/api/v1/keys", [10], (b"content-length", b"101"))
    assert (status, seen) == (413, 0)


async def test_uploads_may_be_larger_if_the_caller_shows_a_credential():
    assert (await send(UPLOAD_PATH, [2**20], KEY))[0] == 200
    assert (await send(UPLOAD_PATH, [2**20, 1_001], KEY))[0] == 413
    assert (await send(UPLOAD_PATH, [101]))[0] == 413


async def test_a_credential_that_is_none_buys_no_large_body():
    chunk = f"{CHUNK_PREFIX}0c3dd2a4-0000-4000-8000-000000000000"
    for path, method in ((UPLOAD_PATH, "POST"), (chunk, "PATCH")):
        status, body, seen = await send(path, [60, 41], WRONG_KEY, method=method)
        assert (status, seen) == (413, 60)
        assert body["detail"] == "Without a live API key or log-in this route takes at most 100 bytes."
        assert (await send(path, [60], WRONG_KEY, method=method))[0] == 200  # the view answers 401


@pytest.mark.django_db(transaction=True)
async def test_known_is_who_shows_a_live_key_or_session():
    bob, browser = await sync_to_async(lambda: ((story := make_story()).bob, story.bob.browser()))()

    async def known(name: str, value: str) -> bool:
        headers = [(name.encode(), value.encode()), (b"host", b"localhost")]
        return await is_known({"type": "http", "method": "POST", "path": UPLOAD_PATH, "headers": headers})

    session = browser.cookies["sessionid"].value
    assert await known("authorization", f"Bearer {bob.key}")
    assert await known("cookie", f"a=b; sessionid={session}")
    assert not await known("authorization", f"Bearer {bob.key}0")
    assert not await known("authorization", "")
    assert not await known("cookie", "sessionid=nonsense")
    await sync_to_async(browser.post)("/logout/")
    assert not await known("cookie", f"sessionid={session}")


async def test_chunks_have_a_limit_of_their_own_if_the_caller_shows_a_credential():
    path = f"{CHUNK_PREFIX}0c3dd2a4-0000-4000-8000-000000000000"
    assert (await send(path, [300, 200], KEY, method="PATCH"))[0] == 200
    assert (await send(path, [300, 201], KEY, method="PATCH"))[0] == 413
    assert (await send(path, [101], method="PATCH"))[0] == 413
    assert (await send(f"{path}/complete", [101], KEY))[0] == 413
