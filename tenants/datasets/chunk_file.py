"""The file of a chunked upload: one writer at a time, each chunk whole and on the disk, or of no effect."""

import fcntl
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Protocol

from django.conf import settings

from tenants.datasets import storage
from tenants.datasets.models import Upload
from tenants.datasets.refusals import busy, chunk_empty, chunk_too_large
from tenants.datasets.uploads import not_stored, require_digest

logger = logging.getLogger(__name__)

_PIECE_BYTES = 2**20


class Source(Protocol):
    """Where a chunk's bytes come from."""

    def read(self, size: int, /) -> bytes: ...


def write_chunk(file: FileIO, upload: Upload, source: Source, wanted: str | None) -> int:
    """Bytes written; what a refusal leaves behind is cut off by the next writer."""
    size_bytes, digest = 0, hashlib.sha256()
    room = min(upload.size_bytes - upload.received_bytes, settings.JOYNEXUS_CHUNK_MAX_BYTES)
    file.truncate(upload.received_bytes)  # of a writer that died: never acknowledged
    file.seek(upload.received_bytes)
    while piece := source.read(_PIECE_BYTES):
        size_bytes += len(piece)
        if size_bytes > room:
            raise chunk_too_large(upload, settings.JOYNEXUS_CHUNK_MAX_BYTES)
        digest.update(piece)
        with _full_disk_refused(upload):
            _write_all(file, piece)
    if size_bytes == 0:
        raise chunk_empty()
    require_digest(wanted, sha256=digest.hexdigest(), size_bytes=size_bytes)
    with _full_disk_refused(upload):
        os.fsync(file.fileno())
        if upload.received_bytes == 0:  # the name is new: it must survive a power cut too
            _sync_folder()
    return size_bytes


def _write_all(file: FileIO, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[file.write(left) :]


def _sync_folder() -> None:
    descriptor = os.open(storage.incoming(), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _full_disk_refused(upload: Upload) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        logger.error("chunk of upload %s not stored: %s", upload.pk, error)
        raise not_stored() from error


@contextmanager
def locked_file(upload: Upload) -> Iterator[FileIO]:
    """The upload's file, for this request only; whoever dies lets go of it. Raises ApplicationError 409."""
    descriptor = os.open(storage.chunks_path(upload.pk), os.O_RDWR | os.O_CREAT, 0o600)
    with FileIO(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy() from None
        yield file
