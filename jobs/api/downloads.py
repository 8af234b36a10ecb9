"""Streaming a published file from the runtime to its reader: whole, or the part a player asks for."""

import asyncio
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename

from jobs.files import MEDIA_SUFFIXES, file_open, media_type_of, require_kept
from jobs.models import Artifact
from jobs.runtime_client import ArtifactStream
from tenants.errors import ApplicationError
from tenants.ranges import ByteRange, Unsatisfiable, parse_range

SHOWN_IN_PLACE = frozenset({"video/mp4", "application/json"})


def download(artifact: Artifact, headers: Any) -> HttpResponseBase:
    """The answer to a GET: 200, 206 with a part or 304. Raises ApplicationError 410, 416, 502 and 503."""
    require_kept(artifact)
    tag = f'"{artifact.sha256}"'
    if headers.get("If-None-Match") == tag:
        return _described(HttpResponse(status=HTTPStatus.NOT_MODIFIED), artifact, tag)
    part = _part(artifact, headers, tag)
    first, last = (part.first, part.last) if part else (None, None)
    stream = file_open(artifact, first=first, last=last)
    response = StreamingHttpResponse(ReadAside(stream), content_type=media_type_of(artifact))
    response["Content-Length"] = str(artifact.size_bytes)
    if part is not None and stream.is_part:
        response.status_code = HTTPStatus.PARTIAL_CONTENT
        response["Content-Length"] = str(part.length)
        response["Content-Range"] = part.content_range(artifact.size_bytes)
    return _described(response, artifact, tag)


def _part(artifact: Artifact, headers: Any, tag: str) -> ByteRange | None:
    """``If-Range`` with another tag: the reader's beginning is of another file, so it gets everything."""
    if headers.get("If-Range", tag) != tag:
        return None
    try:
        return parse_range(headers.get("Range"), artifact.size_bytes)
    except Unsatisfiable:
        raise ApplicationError(
            code="range_not_satisfiable",
            status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            detail=f"The file has {artifact.size_bytes} bytes; the part lies behind its end.",
            headers={"Content-Range": f"bytes */{artifact.size_bytes}"},
        ) from None


def _described(response: HttpResponseBase, artifact: Artifact, tag: str) -> HttpResponseBase:
    media_type = media_type_of(artifact)
    attached = media_type not in SHOWN_IN_PLACE
    response["Content-Disposition"] = content_disposition_header(attached, _file_name(artifact, media_type)) or ""
    response["Accept-Ranges"] = "bytes"
    response["Cache-Control"] = "private, no-cache"  # may be kept, and asked about with its tag
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Checksum-SHA256"] = artifact.sha256
    response["ETag"] = tag
    return response


def _file_name(artifact: Artifact, media_type: str) -> str:
    told = artifact.name if artifact.kind == "video" else f"{artifact.kind}-v{artifact.policy_version}"
    stem = get_valid_filename(f"{artifact.job.name}-{told}".replace("/", "-"))
    suffix = MEDIA_SUFFIXES.get(media_type, "bin")
    return stem if stem.endswith(f".{suffix}") else f"{stem}.{suffix}"


class ReadAside:
    """Reads in a thread, chunk by chunk: the server's loop never waits and memory stays flat.

    Django closes it with the response, also when a reader leaves before the first byte.
    """

    def __init__(self, stream: ArtifactStream) -> None:
        self._chunks = iter(stream.chunks)
        self.close = stream.close

    def __aiter__(self) -> "ReadAside":
        return self

    async def __anext__(self) -> bytes:
        chunk = await asyncio.to_thread(next, self._chunks, None)
        if chunk is None:
            raise StopAsyncIteration
        return chunk
