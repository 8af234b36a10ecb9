"""Streaming an upload to disk: counted and hashed as it comes, cut off at the limit, removed if nobody takes it."""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest
from rest_framework.parsers import BaseParser

from tenants.datasets import storage
from tenants.errors import ApplicationError

logger = logging.getLogger(__name__)

DIGEST_HEADER = "X-Content-SHA256"
_CHUNK_BYTES = 2**20


class StagedUpload:
    """A file being received under the dataset root. ``close`` removes it unless it was moved away."""

    def __init__(self, *, max_bytes: int) -> None:
        self.path: Path = storage.upload_path()
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._file = _create(self.path)

    def write(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        if self.size_bytes > self._max_bytes:
            self.close()
            raise too_large(self._max_bytes)
        self._hash.update(chunk)
        with self._full_disk_refused():
            self._file.write(chunk)

    def finish(self) -> None:
        with self._full_disk_refused():
            self._file.close()

    @contextlib.contextmanager
    def _full_disk_refused(self) -> Iterator[None]:
        """Raises ApplicationError 507 where the disk takes no more; nothing of the upload is kept."""
        try:
            yield
        except OSError as error:
            logger.error("upload not stored: %s", error)
            self.close()
            raise _not_stored() from error

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what is still to be written is not wanted any more
            self._file.close()
        self.path.unlink(missing_ok=True)


class ZipParser(BaseParser):
    """The body itself is the archive: `Content-Type: application/zip`."""

    media_type = "application/zip"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """A finished ``StagedUpload``; whoever asks for it closes it."""
        request: HttpRequest = parser_context["request"]
        refuse_by_length(request.META)
        upload = StagedUpload(max_bytes=settings.JOYNEXUS_UPLOAD_MAX_BYTES)
        try:
            for chunk in _chunks(stream):
                upload.write(chunk)
            upload.finish()
        except BaseException:
            upload.close()
            raise
        return upload


class StagingUploadHandler(FileUploadHandler):
    """Multipart: the one part called `file` goes to the staging place. Other files are refused."""

    chunk_size = _CHUNK_BYTES
    upload: StagedUpload | None = None

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        if self.field_name != "file" or self.upload is not None:
            raise ApplicationError(
                code="validation_failed",
                status=422,
                detail=f"Exactly one file, in the part 'file', is allowed; got one more in {self.field_name!r}.",
            )
        self.upload = StagedUpload(max_bytes=settings.JOYNEXUS_UPLOAD_MAX_BYTES)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        if self.upload is not None:
            self.upload.write(raw_data)

    def file_complete(self, file_size: int) -> Any:
        if self.upload is not None:
            self.upload.finish()
        return self.upload

    def upload_interrupted(self) -> None:
        if self.upload is not None:
            self.upload.close()


def refuse_by_length(headers: Mapping[str, Any]) -> None:
    """Refuse a body whose announced length is over the limit before reading it."""
    announced = str(headers.get("CONTENT_LENGTH") or "0")
    limit = settings.JOYNEXUS_UPLOAD_MAX_BYTES
    if announced.isdigit() and int(announced) > limit + _CHUNK_BYTES:  # multipart adds a little
        raise too_large(limit)


def require_digest(upload: StagedUpload, wanted: str | None) -> None:
    """Compare with the caller's `X-Content-SHA256`, if given. Raises ApplicationError 422."""
    if wanted is not None and wanted.lower() != upload.sha256:
        raise ApplicationError(
            code="digest_mismatch",
            status=422,
            detail=f"{DIGEST_HEADER} says {wanted!r}, the {upload.size_bytes} bytes received have {upload.sha256!r}.",
        )


def _create(path: Path) -> IO[bytes]:
    return path.open("xb")


def _not_stored() -> ApplicationError:
    return ApplicationError(
        code="storage_full",
        status=507,
        detail="The storage for datasets takes no more; nothing was kept. Try again when its operator made room.",
    )


def too_large(limit: int) -> ApplicationError:
    return ApplicationError(
        code="upload_too_large",
        status=413,
        detail=f"An upload may have at most {limit} bytes.",
        extra={"limit": limit},
    )


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk
