"""REST: upload recordings, read what validation found, delete."""

import json
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework.parsers import MultiPartParser
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message, fingerprint
from gpu_runtime.protocol.schema import Declared
from tenants.bodies import parse_body, refuse_repeated
from tenants.datasets import removal, selectors, services, uploads
from tenants.datasets.models import Dataset
from tenants.datasets.outputs import DatasetOutput, VersionDetailOutput
from tenants.errors import invalid
from tenants.idempotency import KEY_PARAMETER, idempotency_key, idempotent
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.preconditions import MATCH_PARAMETER, etag_of, require_match
from tenants.requests import TenantRequest


class DatasetInput(Message):
    """Beside the bytes: the dataset's name (an existing one gets a new version) and what the files do not say."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    declared: Declared | None = None
    derived_from: Annotated[UUID | None, Field(description="The ready version that this one was made from.")] = None


class DatasetChange(Message):
    """What of a dataset may be changed; what is left out stays."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = ""
    keep_days: Annotated[int | None, Field(ge=1, le=36_500)] = None


_UPLOAD_PARAMETERS = [
    KEY_PARAMETER,
    OpenApiParameter(uploads.DIGEST_HEADER, str, OpenApiParameter.HEADER, description="SHA-256 of the archive, hex."),
    OpenApiParameter("name", str, description="With application/zip: the dataset's name."),
    OpenApiParameter("declared", str, description="With application/zip: a Declared object as JSON."),
    OpenApiParameter("derived_from", UUID, description="With application/zip: the version this one was made from."),
]
_MULTIPART = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "name": {"type": "string"},
        "declared": {"type": "string", "description": "A Declared object as JSON."},
        "derived_from": {"type": "string", "format": "uuid"},
    },
    "required": ["file", "name"],
}


class DatasetListApi(ListView):
    """The tenant's datasets."""

    permission = {"GET": Permission.DATASETS_READ, "POST": Permission.DATASETS_WRITE}
    serializer_class = DatasetOutput
    parser_classes = [uploads.ZipParser, MultiPartParser]

    def initialize_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        request.upload_handlers = [uploads.StagingUploadHandler(request)]
        return super().initialize_request(request, *args, **kwargs)

    def rows(self, request: TenantRequest, query: PageQuery) -> Any:
        return selectors.dataset_list(request.tenant)

    @extend_schema(operation_id="datasets_list")
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="datasets_upload",
        parameters=_UPLOAD_PARAMETERS,
        request={"application/zip": OpenApiTypes.BINARY, "multipart/form-data": _MULTIPART},
        responses={202: VersionDetailOutput},
    )
    def post(self, request: TenantRequest) -> Response:
        """Upload a LeRobot v2.1 or v3.0 dataset as a zip archive. Validation follows; poll the version."""
        idempotency_key(request)
        uploads.refuse_by_length(request.META)
        upload = _received(request)
        try:
            fields = _fields(request)
            wanted = request.headers.get(uploads.DIGEST_HEADER)
            uploads.require_digest(wanted, sha256=upload.sha256, size_bytes=upload.size_bytes)
            body = parse_body(DatasetInput, fields)
            said = fingerprint({"sha256": upload.sha256, "fields": fields})
            return idempotent(request, lambda: self._create(request, upload, body), body_sha256=said)
        finally:
            upload.close()

    def _create(self, request: TenantRequest, upload: uploads.StagedUpload, body: DatasetInput) -> Response:
        version = services.dataset_import(
            tenant=request.tenant,
            actor=request.actor,
            name=body.name,
            source=upload.path,
            declared=body.declared,
            derived_from=body.derived_from,
            lease=upload.lease,
        )
        location = f"/api/v1/dataset-versions/{version.pk}"
        return Response(VersionDetailOutput(version).data, status=202, headers={"Location": location})


class DatasetApi(APIView):
    """One dataset."""

    permission = {
        "GET": Permission.DATASETS_READ,
        "PATCH": Permission.DATASETS_WRITE,
        "DELETE": Permission.DATASETS_WRITE,
    }

    @extend_schema(operation_id="datasets_get", responses=DatasetOutput)
    def get(self, request: TenantRequest, dataset_id: UUID) -> Response:
        """Its ETag changes with name, retention and list of versions."""
        refuse_query(request)
        return _dataset(selectors.dataset_get(request.tenant, dataset_id))

    @extend_schema(
        operation_id="datasets_change",
        parameters=[MATCH_PARAMETER],
        request=DatasetChange,
        responses=DatasetOutput,
    )
    def patch(self, request: TenantRequest, dataset_id: UUID) -> Response:
        """Rename it, or say how long unused versions are kept."""
        refuse_query(request)
        selectors.dataset_get(request.tenant, dataset_id)
        body = parse_body(DatasetChange, request.data)
        dataset = services.dataset_change(
            tenant=request.tenant,
            actor=request.actor,
            dataset_id=dataset_id,
            changes=body.model_dump(include=body.model_fields_set),
            precondition=partial(require_match, request),
        )
        return _dataset(dataset)

    @extend_schema(operation_id="datasets_delete", parameters=[MATCH_PARAMETER], responses={204: None})
    def delete(self, request: TenantRequest, dataset_id: UUID) -> Response:
        """With all its versions. 409 while jobs, ended ones too, were trained on one."""
        refuse_query(request)
        removal.dataset_delete(
            tenant=request.tenant,
            actor=request.actor,
            dataset_id=dataset_id,
            precondition=partial(require_match, request),
        )
        return Response(status=204)


class DatasetVersionByNumberApi(APIView):
    """Version n of a dataset."""

    permission = {"GET": Permission.DATASETS_READ}

    @extend_schema(operation_id="dataset_versions_by_number", responses=VersionDetailOutput)
    def get(self, request: TenantRequest, dataset_id: UUID, number: int) -> Response:
        refuse_query(request)
        return Response(VersionDetailOutput(selectors.version_by_number(request.tenant, dataset_id, number)).data)


class DatasetVersionApi(APIView):
    """A version by its own id, as job specifications name it."""

    permission = {"GET": Permission.DATASETS_READ, "DELETE": Permission.DATASETS_WRITE}

    @extend_schema(operation_id="dataset_versions_get", responses=VersionDetailOutput)
    def get(self, request: TenantRequest, version_id: UUID) -> Response:
        refuse_query(request)
        return Response(VersionDetailOutput(selectors.version_get(request.tenant, version_id)).data)

    @extend_schema(operation_id="dataset_versions_delete", responses={204: None})
    def delete(self, request: TenantRequest, version_id: UUID) -> Response:
        refuse_query(request)
        removal.version_delete(tenant=request.tenant, actor=request.actor, version_id=version_id)
        return Response(status=204)


def _dataset(dataset: Dataset) -> Response:
    return Response(DatasetOutput(dataset).data, headers={"ETag": etag_of(dataset.version)})


def _received(request: TenantRequest) -> uploads.StagedUpload:
    """The staged archive: the whole body, or the part `file` of a form."""
    if isinstance(request.data, uploads.StagedUpload):
        return request.data
    upload = request.FILES.get("file")
    if upload is None:
        raise invalid("/file", "missing", "The part 'file' with the zip archive is required.")
    return upload


def _fields(request: TenantRequest) -> dict[str, Any]:
    """What was said beside the archive: the other parts of a form, else the query parameters."""
    if isinstance(request.data, uploads.StagedUpload):
        refuse_repeated(request.query_params)
        fields: dict[str, Any] = request.query_params.dict()
    else:
        refuse_query(request)
        parts: Any = request.data
        refuse_repeated(parts, at="/")
        fields = {name: value for name, value in parts.items() if name != "file"}
    if "declared" in fields:
        try:
            fields["declared"] = json.loads(fields["declared"])
        except (ValueError, RecursionError):
            raise invalid("/declared", "json_invalid", "It must be a JSON object.") from None
    return fields
