"""Sending a large archive in chunks: each is on the server's disk when it answers, so nothing is sent twice."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from joynexus_client.answers import Version
from joynexus_client.errors import Conflict
from joynexus_client.transport import Transport

CHUNK_BYTES = 16 * 2**20
Progress = Callable[[int, int], object]

_PATH = "/api/v1/uploads"
_COMPLETE_TIMEOUT_S = 600.0  # the server reads the whole once more
_BUSY_PAUSE_S, _BUSY_MAX = 1.0, 60


@dataclass(frozen=True, kw_only=True)
class Sending:
    """What is sent, and what is said about it."""

    archive: Path
    name: str
    declared: dict[str, Any] | None
    derived_from: str | None

    @cached_property
    def size_bytes(self) -> int:
        return self.archive.stat().st_size

    @cached_property
    def sha256(self) -> str:
        with self.archive.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def said(self) -> dict[str, Any]:
        """The body that starts the upload."""
        body = {"name": self.name, "size_bytes": self.size_bytes, "sha256": self.sha256}
        optional = {"declared": self.declared, "derived_from": self.derived_from}
        return body | {name: value for name, value in optional.items() if value is not None}


def send_in_chunks(transport: Transport, what: Sending, *, chunk_bytes: int, on_progress: Progress | None) -> Version:
    """Start the upload or find the one that was interrupted, send what is missing, complete it."""
    upload = _interrupted(transport, what) or transport.post(_PATH, what.said())
    path, offset = f"{_PATH}/{upload['id']}", int(upload["offset"])
    with what.archive.open("rb") as file:
        while offset < what.size_bytes:
            file.seek(offset)
            offset = _send_chunk(transport, path, offset, file.read(chunk_bytes))
            if on_progress is not None:
                on_progress(offset, what.size_bytes)
    version: Version = transport.post(f"{path}/complete", timeout_s=_COMPLETE_TIMEOUT_S)
    return version


def _interrupted(transport: Transport, what: Sending) -> dict[str, Any] | None:
    """An upload of the same archive under the same name that still waits for chunks."""
    same: dict[str, Any] = {"declared": {}, "derived_from": None, **what.said(), "state": "receiving"}
    rows: list[dict[str, Any]] = transport.get(_PATH, limit=200)["results"]
    return next((row for row in rows if all(row[name] == value for name, value in same.items())), None)


def _send_chunk(transport: Transport, path: str, offset: int, chunk: bytes) -> int:
    """The next offset. A chunk that arrived though its answer was lost is not sent again."""
    headers = {"Upload-Offset": str(offset), "X-Content-SHA256": hashlib.sha256(chunk).hexdigest()}
    for left in reversed(range(_BUSY_MAX)):
        try:
            return int(transport.append(path, chunk, headers=headers)["offset"])
        except Conflict as refusal:
            if refusal.code == "offset_mismatch":
                break
            if refusal.code != "upload_busy" or left == 0:
                raise
        transport.pause(_BUSY_PAUSE_S)  # the request whose connection broke is still being written
    return int(transport.get(path)["offset"])
