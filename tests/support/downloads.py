"""Reading a streamed answer in a test."""

from typing import Any

from asgiref.sync import async_to_sync


def content_of(answer: Any) -> bytes:
    """All of its bytes."""

    async def read() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(read)()
