"""Sending a file of this server, whole or the part a player asks for, with the headers of both."""

import asyncio
import os
from http import HTTPStatus
from typing import Any, BinaryIO

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from tenants.errors import ApplicationError
from tenants.ranges import ByteRange, Unsatisfiable, parse_range

_CHUNK_BYTES = 2**18


class FilePart:
    """``length`` bytes from ``first`` on, read in a thread: the server's loop never waits and memory stays flat.

    Django closes it, and the file, with the response.
    """

    def __init__(self, file: BinaryIO, first: int, length: int) -> None:
        file.seek(first)
        self._file, self._left, self.close = file, length, file.close

    def __aiter__(self) -> "FilePart":
        return self

    async def __anext__(self) -> bytes:
        chunk = await asyncio.to_thread(self._file.read, min(self._left, _CHUNK_BYTES))
        if not chunk:
            raise StopAsyncIteration
        self._left -= len(chunk)
        return chunk


def file_answer(file: BinaryIO, headers: Any, *, tag: str, content_type: str) -> HttpResponseBase:
    """The answer to a GET: 200, 206 with a part, or 304. ``file`` is closed with it. Raises ApplicationError 416."""
    size = os.fstat(file.fileno()).st_size
    if headers.get("If-None-Match") == tag:
        file.close()
        return _described(HttpResponse(status=HTTPStatus.NOT_MODIFIED), tag)
    try:  # another tag: the reader's beginning is of another file, so it gets everything
        part = parse_range(headers.get("Range"), size) if headers.get("If-Range", tag) == tag else None
    except Unsatisfiable:
        file.close()
        raise ApplicationError(
            code="range_not_satisfiable",
            status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            detail=f"The file has {size} bytes; the part lies behind its end.",
            headers={"Content-Range": f"bytes */{size}"},
        ) from None
    whole = ByteRange(first=0, last=size - 1)
    sent = part or whole
    response = StreamingHttpResponse(FilePart(file, sent.first, sent.length), content_type=content_type)
    response["Content-Length"] = str(sent.length)
    if part is not None:
        response.status_code = HTTPStatus.PARTIAL_CONTENT
        response["Content-Range"] = part.content_range(size)
    return _described(response, tag)


def _described(response: HttpResponseBase, tag: str) -> HttpResponseBase:
    response["Accept-Ranges"] = "bytes"
    response["Content-Disposition"] = "inline"
    response["X-Content-Type-Options"] = "nosniff"
    response["ETag"] = tag
    return response
