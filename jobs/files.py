"""Published files, whose bytes the runtime keeps: opened whole or in part, or read and checked."""

import hashlib

from jobs import runtime_client
from jobs.models import Artifact
from jobs.runtime_client import ArtifactStream, RuntimeRefused, RuntimeUnreachable
from tenants.errors import ApplicationError

READ_MAX_BYTES = 64 * 2**20
MEDIA_SUFFIXES = {"application/zip": "zip", "application/json": "json", "video/mp4": "mp4"}
UNKNOWN_MEDIA_TYPE = "application/octet-stream"


def media_type_of(artifact: Artifact) -> str:
    """What the file is served as: one of the types we know, so that no browser ever takes one for a page."""
    return artifact.media_type if artifact.media_type in MEDIA_SUFFIXES else UNKNOWN_MEDIA_TYPE


def file_open(artifact: Artifact, *, first: int | None = None, last: int | None = None) -> ArtifactStream:
    """The bytes, or those from ``first`` to ``last`` (both included). Raises ApplicationError 410, 502 and 503."""
    require_kept(artifact)
    try:
        return runtime_client.connect().artifact(artifact.runtime_key, first=first, last=last)
    except RuntimeUnreachable as error:
        raise _away() from error
    except RuntimeRefused as error:
        detail = f"The runtime does not hand out this file: {error.message}"
        raise ApplicationError(code="artifact_unavailable", status=502, detail=detail) from error


def file_read(artifact: Artifact) -> bytes:
    """The whole file, with the SHA-256 it was published with. Raises ApplicationError 410, 502 and 503."""
    if artifact.size_bytes > READ_MAX_BYTES:
        detail = f"The file has {artifact.size_bytes} bytes; at most {READ_MAX_BYTES} are read here. Download it."
        raise ApplicationError(code="artifact_too_large", status=502, detail=detail)
    stream = file_open(artifact)
    try:
        content = bytearray()
        for chunk in stream.chunks:
            content += chunk
            if len(content) > READ_MAX_BYTES:
                break
    except RuntimeUnreachable as error:
        raise _away() from error
    finally:
        stream.close()
    if hashlib.sha256(content).hexdigest() != artifact.sha256:
        detail = "The runtime's file is not the one that was published."
        raise ApplicationError(code="artifact_altered", status=502, detail=detail)
    return bytes(content)


def require_kept(artifact: Artifact) -> None:
    """Raises ApplicationError 410 for a deleted one."""
    if artifact.deleted_at is not None:
        detail = f"This file was deleted at {artifact.deleted_at:%Y-%m-%d %H:%M} UTC."
        raise ApplicationError(code="artifact_deleted", status=410, detail=detail)


def _away() -> ApplicationError:
    detail = "The GPU runtime, which keeps the file, does not answer. Try again later."
    return ApplicationError(code="runtime_unreachable", status=503, detail=detail)
