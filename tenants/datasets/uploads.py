"""Streaming an upload to disk: counted and hashed as it comes, cut off at the limit, removed if nobody takes it."""

import contextlib
import hashlib
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest
from rest_framework.parsers import BaseParser

from tenants.datasets import storage
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.quotas.leases import Lease, lease_hold, lease_release

logger = logging.getLogger(__name__)

DIGEST_HEADER = "X-Content-SHA256"
_CHUNK_BYTES = 2**20
_RENEW_EVERY_S = 60.0


class StagedUpload:
    """A file being received under the dataset root, its space reserved in the tenant's storage.

    ``expected_bytes`` are reserved at once; what comes beyond them, before it is written. ``close`` removes the file
    and gives back what nobody settled.
    """

    def __init__(
        self, *, tenant: Tenant, max_bytes: int, expected_bytes: int = 0, lease_id: uuid.UUID | None = None
    ) -> None:
        self.path: Path = storage.upload_path()
        self.size_bytes = 0
        self.lease = Lease(tenant=tenant, id=lease_id or uuid.uuid4())
        self._max_bytes = max_bytes
        self._reserved_bytes = 0
        self._renew_at_s = 0.0
        self._hash = hashlib.sha256()
        self._file = _create(self.path)
        try:
            self._reserve(expected_bytes)
        except ApplicationError:
            self.close()
            raise

    def write(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        try:
            if self.size_bytes > self._max_bytes:
                raise too_large(self._max_bytes)
            if self.size_bytes > self._reserved_bytes or time.monotonic() >= self._renew_at_s:
                self._reserve(max(self.size_bytes, self._reserved_bytes))
        except ApplicationError:
            self.close()
            raise
        self._hash.update(chunk)
        with self._full_disk_refused():
            self._file.write(chunk)

    def finish(self) -> None:
        with self._full_disk_refused():
            self._file.close()

    def _reserve(self, size_bytes: int) -> None:
        lease_hold(self.lease, size_bytes)
        self._reserved_bytes, self._renew_at_s = size_bytes, time.monotonic() + _RENEW_EVERY_S

    @contextlib.contextmanager
    def _full_disk_refused(self) -> Iterator[None]:
        """Raises ApplicationError 507 where the disk takes no more; nothing of the upload is kept."""
        try:
            yield
        except OSError as error:
            logger.error("upload not stored: %s", error)
            self.close()
            raise not_stored() from error

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what is still to be written is not wanted any more
            self._file.close()
        self.path.unlink(missing_ok=True)
        lease_release(self.lease)


class ZipParser(BaseParser):
    """The body itself is the archive: `Content-Type: application/zip`."""

    media_type = "application/zip"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """A finished ``StagedUpload``; whoever asks for it closes it."""
        request: HttpRequest = parser_context["request"]
        refuse_by_length(request.META)
        upload = _staged(request)
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
        self.upload = _staged(self.request)

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
    limit = one_request_max_bytes()
    if announced.isdigit() and int(announced) > limit + _CHUNK_BYTES:  # multipart adds a little
        raise too_large(limit)


def one_request_max_bytes() -> int:
    """What an archive in a single request may have: not more than a chunk, as the server holds all of it at once.

    Larger ones come in chunks, whose whole size is reserved before the first byte.
    """
    return min(settings.JOYNEXUS_UPLOAD_MAX_BYTES, settings.JOYNEXUS_CHUNK_MAX_BYTES)


def require_digest(wanted: str | None, *, sha256: str, size_bytes: int) -> None:
    """Compare with the caller's `X-Content-SHA256`, if given. Raises ApplicationError 422."""
    if wanted is not None and wanted.lower() != sha256:
        raise ApplicationError(
            code="digest_mismatch",
            status=422,
            detail=f"{DIGEST_HEADER} says {wanted!r}, the {size_bytes} bytes received have {sha256!r}.",
        )


def _staged(request: Any) -> StagedUpload:
    """A place for the body; what it announces is reserved before the first byte, one that announces nothing grows."""
    if request.tenant is None:
        raise ApplicationError(code="no_tenant", status=403, detail="You are not a member of any tenant.")
    limit = one_request_max_bytes()
    expected_bytes = min(_announced_bytes(request), limit)
    return StagedUpload(tenant=request.tenant, max_bytes=limit, expected_bytes=expected_bytes)


def _announced_bytes(request: Any) -> int:
    announced = str(request.META.get("CONTENT_LENGTH") or "")
    return int(announced) if announced.isdigit() else 0


def _create(path: Path) -> IO[bytes]:
    return path.open("xb")


def not_stored() -> ApplicationError:
    """The refusal where the disk takes no more."""
    return ApplicationError(
        code="storage_full",
        status=507,
        detail="The storage for datasets takes no more; nothing was kept. Try again when its operator made room.",
    )


def too_large(limit: int) -> ApplicationError:
    """The refusal of an archive that is too large for one request."""
    return ApplicationError(
        code="upload_too_large",
        status=413,
        detail=f"One request may bring at most {limit} bytes; send a larger archive in chunks: POST /api/v1/uploads.",
        extra={"limit": limit},
    )


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk
