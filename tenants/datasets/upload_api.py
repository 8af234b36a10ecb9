"""REST: uploads in chunks that can be resumed."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.schema import Declared
from tenants.bodies import parse_body
from tenants.datasets import resumable, selectors
from tenants.datasets.models import Upload
from tenants.datasets.outputs import VersionDetailOutput
from tenants.datasets.refusals import OFFSET_HEADER
from tenants.datasets.uploads import DIGEST_HEADER
from tenants.errors import ApplicationError, FieldError
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, NoQuery, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest

LENGTH_HEADER = "Upload-Length"


class UploadInput(Message):
    """What will come: the dataset's name (an existing one gets a new version), the archive's size and SHA-256."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    size_bytes: Annotated[int, Field(ge=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$", description="Of the whole archive, hexadecimal.")]
    declared: Declared | None = None
    derived_from: Annotated[UUID | None, Field(description="The ready version that this one was made from.")] = None


class UploadOutput(serializers.ModelSerializer[Upload]):
    """A chunked upload; ``offset`` is the next byte to send."""

    offset = serializers.IntegerField(source="received_bytes")
    expires_at = serializers.SerializerMethodField(help_text="Unless a chunk comes before; null: it has ended.")

    class Meta:
        model = Upload
        fields = [
            "id",
            "name",
            "state",
            "reason",
            "size_bytes",
            "offset",
            "sha256",
            "declared",
            "derived_from",
            "version",
            "created_at",
            "expires_at",
        ]

    def get_expires_at(self, upload: Upload) -> datetime | None:
        is_open = upload.state == "receiving"
        return upload.touched_at + resumable.EXPIRES_AFTER if is_open else None


class ChunkParser(BaseParser):
    """The body itself is the chunk; it is read by whoever stores it."""

    media_type = "application/octet-stream"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return stream


class UploadListApi(ListView):
    """Uploads of the tenant, newest first."""

    permission = {"GET": Permission.DATASETS_READ, "POST": Permission.DATASETS_WRITE}
    serializer_class = UploadOutput

    def rows(self, request: TenantRequest, query: PageQuery) -> Any:
        return selectors.upload_list(request.tenant)

    @extend_schema(operation_id="uploads_list")
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="uploads_start", parameters=[KEY_PARAMETER], request=UploadInput, responses={201: UploadOutput}
    )
    def post(self, request: TenantRequest) -> Response:
        """Start an upload: its whole size is reserved. Send the archive by PATCH in chunks, then complete it."""
        refuse_query(request)
        body = parse_body(UploadInput, request.data)

        def start() -> Response:
            said = {name: getattr(body, name) for name in UploadInput.model_fields}
            upload = resumable.upload_start(tenant=request.tenant, actor=request.actor, **said)
            return _answer(upload, status=201, Location=f"/api/v1/uploads/{upload.pk}")

        return idempotent(request, start)


class UploadApi(APIView):
    """One upload."""

    permission = {
        "GET": Permission.DATASETS_READ,
        "PATCH": Permission.DATASETS_WRITE,
        "DELETE": Permission.DATASETS_WRITE,
    }
    parser_classes = [ChunkParser]

    @extend_schema(operation_id="uploads_get", responses=UploadOutput)
    def get(self, request: TenantRequest, upload_id: UUID) -> Response:
        """How far it is; HEAD tells it by headers alone."""
        refuse_query(request)
        return _answer(selectors.upload_get(request.tenant, upload_id))

    @extend_schema(
        operation_id="uploads_append",
        parameters=[
            OpenApiParameter(OFFSET_HEADER, int, OpenApiParameter.HEADER, required=True, description="Of the chunk."),
            OpenApiParameter(DIGEST_HEADER, str, OpenApiParameter.HEADER, description="SHA-256 of the chunk, hex."),
        ],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=UploadOutput,
    )
    def patch(self, request: TenantRequest, upload_id: UUID) -> Response:
        """Append a chunk at the next offset. It is on the disk when this answers; on 409 go on at `offset`."""
        refuse_query(request)
        upload = selectors.upload_get(request.tenant, upload_id)
        offset = _offset(request)
        source: Any = request.data  # an empty body has no stream
        upload = resumable.upload_append(
            tenant=request.tenant,
            upload_id=upload.pk,
            offset=offset,
            source=source if hasattr(source, "read") else _Nothing(),
            sha256=request.headers.get(DIGEST_HEADER),
        )
        return _answer(upload)

    @extend_schema(operation_id="uploads_abort", responses={204: None})
    def delete(self, request: TenantRequest, upload_id: UUID) -> Response:
        """Abort: its bytes and its reservation are given back."""
        refuse_query(request)
        resumable.upload_abort(tenant=request.tenant, actor=request.actor, upload_id=upload_id)
        return Response(status=204)


class UploadCompleteApi(APIView):
    """Completing an upload."""

    permission = {"POST": Permission.DATASETS_WRITE}

    @extend_schema(
        operation_id="uploads_complete",
        parameters=[KEY_PARAMETER],
        request=None,
        responses={202: VersionDetailOutput},
    )
    def post(self, request: TenantRequest, upload_id: UUID) -> Response:
        """Check size and SHA-256 of the whole and make it a dataset version. Validation follows; poll the version."""
        refuse_query(request)
        parse_body(NoQuery, request.data or {})
        resumable.upload_verify(tenant=request.tenant, actor=request.actor, upload_id=upload_id)

        def complete() -> Response:
            version = resumable.upload_complete(tenant=request.tenant, actor=request.actor, upload_id=upload_id)
            location = f"/api/v1/dataset-versions/{version.pk}"
            return Response(VersionDetailOutput(version).data, status=202, headers={"Location": location})

        return idempotent(request, complete)


class _Nothing:
    """An empty body."""

    def read(self, size: int, /) -> bytes:
        return b""


def _answer(upload: Upload, status: int = 200, **headers: str) -> Response:
    where = {OFFSET_HEADER: str(upload.received_bytes), LENGTH_HEADER: str(upload.size_bytes)}
    return Response(UploadOutput(upload).data, status=status, headers=where | headers | {"Cache-Control": "no-store"})


def _offset(request: TenantRequest) -> int:
    text = request.headers.get(OFFSET_HEADER, "")
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    detail = f"{OFFSET_HEADER}: {text!r} is no offset; allowed: a whole number of bytes, from 0 on."
    error = FieldError(pointer=OFFSET_HEADER, code="missing" if not text else "invalid", detail=detail)
    raise ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))
