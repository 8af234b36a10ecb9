"""ASGI: refuse bodies that are too large while they arrive. Django would first write all of them to disk."""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from control_plane.problems import MEDIA_TYPE, TYPE_PREFIX

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
IsKnown = Callable[[Scope], Awaitable[bool]]

UPLOAD_PATH = "/api/v1/datasets"
CHUNK_PREFIX = "/api/v1/uploads/"
_FORM_OVERHEAD_BYTES = 2**20
_CREDENTIALS = frozenset({b"authorization", b"cookie"})
_TOO_LARGE = "This route takes at most {limit} bytes."
_STRANGER = "Without a live API key or log-in this route takes at most {limit} bytes."


class BodyTooLarge(Exception):
    """More bytes came than the route allows."""


class BodyLimit:
    """Wraps the HTTP application. Uploads and their chunks may be large, if ``is_known`` says who sends them.

    Strangers would otherwise fill the disk: a body is all there before Django looks at its sender.
    """

    def __init__(
        self,
        application: Application,
        *,
        is_known: IsKnown,
        max_bytes: int,
        upload_max_bytes: int,
        chunk_max_bytes: int,
    ) -> None:
        self._application = application
        self._is_known = is_known
        self._max_bytes = max_bytes
        self._upload_max_bytes = upload_max_bytes + _FORM_OVERHEAD_BYTES
        self._chunk_max_bytes = max(chunk_max_bytes, max_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._application(scope, receive, send)
        limit, said = self._limit(scope), _TOO_LARGE
        if limit > self._max_bytes and not await self._is_sender_known(scope):
            limit, said = self._max_bytes, _STRANGER
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            return await _refuse(scope, send, said.format(limit=limit))
        try:
            await self._application(scope, _counted(receive, limit), send)
        except BodyTooLarge:  # Django reads the whole body before it answers, so nothing was sent yet
            await _refuse(scope, send, said.format(limit=limit))

    async def _is_sender_known(self, scope: Scope) -> bool:
        return any(name in _CREDENTIALS for name, _ in scope["headers"]) and await self._is_known(scope)

    def _limit(self, scope: Scope) -> int:
        if scope["method"] == "POST" and scope["path"] == UPLOAD_PATH:
            return self._upload_max_bytes
        is_chunk = scope["method"] == "PATCH" and scope["path"].startswith(CHUNK_PREFIX)
        return self._chunk_max_bytes if is_chunk else self._max_bytes


def _counted(receive: Receive, limit: int) -> Receive:
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise BodyTooLarge
        return message

    return counted


async def _refuse(scope: Scope, send: Send, detail: str) -> None:
    request_id = uuid.uuid4().hex  # this is outside Django, whose middleware names every other request
    body = {
        "type": TYPE_PREFIX + "body-too-large",
        "title": "Request Entity Too Large",
        "status": 413,
        "detail": detail,
        "instance": scope["path"],
        "errors": [],
        "request_id": request_id,
    }
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"connection", b"close"),
        (b"x-request-id", request_id.encode()),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
