"""What chunked uploads refuse, in words and figures."""

from tenants.datasets.models import Upload
from tenants.errors import ApplicationError, FieldError
from tenants.quotas.models import Resource

OFFSET_HEADER = "Upload-Offset"


def too_many(limit: int, used: int) -> ApplicationError:
    """Refused where a job would queue: the bytes are at the caller's, so there is nothing that could wait here."""
    return ApplicationError(
        code="quota_exceeded",
        status=409,
        detail=(
            f"{used} uploads are under way, of {limit} allowed at once (uploads). An upload cannot wait in a queue: "
            "complete or abort one of them, then start this one again."
        ),
        extra={"resource": Resource.UPLOADS.value, "limit": limit, "used": used},
    )


def offset_mismatch(wanted: int, offset: int) -> ApplicationError:
    return ApplicationError(
        code="offset_mismatch",
        status=409,
        detail=f"{OFFSET_HEADER} is {wanted}, the next byte to come is {offset}: go on there.",
        extra={"offset": offset},
    )


def busy() -> ApplicationError:
    return ApplicationError(
        code="upload_busy", status=409, detail="Another request writes to this upload; ask for its offset and go on."
    )


def ended(upload: Upload) -> ApplicationError:
    why = f": {upload.reason}" if upload.reason else ""
    return ApplicationError(code="upload_ended", status=409, detail=f"This upload is {upload.state}{why}.")


def incomplete(upload: Upload) -> ApplicationError:
    missing = upload.size_bytes - upload.received_bytes
    return ApplicationError(
        code="upload_incomplete",
        status=409,
        detail=f"{missing} of {upload.size_bytes} bytes are missing: go on at {upload.received_bytes}.",
        extra={"offset": upload.received_bytes},
    )


def damaged() -> ApplicationError:
    return ApplicationError(
        code="upload_damaged", status=409, detail="Bytes of this upload were lost on the server; abort it, start anew."
    )


def chunk_empty() -> ApplicationError:
    return _chunk_refused("chunk_empty", 422, "The body is empty; a chunk has at least one byte.")


def chunk_too_large(upload: Upload, limit: int) -> ApplicationError:
    missing = upload.size_bytes - upload.received_bytes
    if missing < limit:
        return _chunk_refused("chunk_beyond_end", 422, f"The upload has {missing} bytes to come; the chunk has more.")
    error = _chunk_refused("chunk_too_large", 413, f"A chunk may have at most {limit} bytes.")
    error.extra = {"limit": limit}
    return error


def size_refused(limit: int, size_bytes: int) -> ApplicationError:
    detail = f"An upload may have at most {limit} bytes; got {size_bytes}."
    error = FieldError(pointer="/size_bytes", code="too_large", detail=detail)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))


def _chunk_refused(code: str, status: int, detail: str) -> ApplicationError:
    return ApplicationError(code=code, status=status, detail=detail)
