"""Refuses a request body before it is held in memory."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyTooLarge(Exception):
    """More bytes than the gateway takes."""


class BodyLimit:
    """ASGI middleware: reading past ``max_bytes`` raises BodyTooLarge, whatever Content-Length says."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise BodyTooLarge(f"the body has more than {self._max_bytes} bytes")
            return message

        await self._app(scope, limited, send)
