"""REST: what jobs published. The runtime keeps the bytes; downloads stream through."""

from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.downloads import download
from jobs.api.published_outputs import ArtifactOutput, PolicyVersionOutput
from jobs.api.queries import ArtifactListQuery
from jobs.files import MEDIA_SUFFIXES
from jobs.models import ArtifactKind
from jobs.selectors.jobs import artifact_get, artifact_list, policy_version_list
from jobs.services.retention import ArtifactChange, artifact_delete, artifact_keep
from tenants.bodies import parse_body
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest

_KIND = OpenApiParameter("kind", str, enum=ArtifactKind.values)
_RANGE = OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="One range, `bytes=0-1023`; then 206.")
_FILE = OpenApiResponse(OpenApiTypes.BINARY, description="The file, or the part asked for.")


class ArtifactListApi(ListView):
    """Artifacts of all jobs of the tenant, newest first; `?kind=adapter` lists its policies."""

    permission = {"GET": Permission.JOBS_READ}
    serializer_class = ArtifactOutput
    query = ArtifactListQuery

    def rows(self, request: TenantRequest, query: ArtifactListQuery):
        return artifact_list(request.tenant, kind=query.kind or "")

    @extend_schema(operation_id="artifacts_list", parameters=[_KIND])
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)


class ArtifactApi(APIView):
    """One artifact."""

    permission = {"GET": Permission.JOBS_READ, "PATCH": Permission.JOBS_WRITE, "DELETE": Permission.JOBS_WRITE}

    @extend_schema(operation_id="artifacts_get", responses=ArtifactOutput)
    def get(self, request: TenantRequest, artifact_id: UUID) -> Response:
        refuse_query(request)
        return Response(ArtifactOutput(artifact_get(request.tenant, artifact_id)).data)

    @extend_schema(operation_id="artifacts_change", request=ArtifactChange, responses=ArtifactOutput)
    def patch(self, request: TenantRequest, artifact_id: UUID) -> Response:
        """Say how long it is kept. 410 for one that is deleted."""
        refuse_query(request)
        artifact_get(request.tenant, artifact_id)
        body = parse_body(ArtifactChange, request.data)
        artifact = artifact_keep(actor=request.actor, artifact_id=artifact_id, keep_days=body.keep_days)
        return Response(ArtifactOutput(artifact).data)

    @extend_schema(operation_id="artifacts_delete", responses={204: None})
    def delete(self, request: TenantRequest, artifact_id: UUID) -> Response:
        """Its bytes go, its row stays listed with `deleted_at`. 409 while a job starts from it; again is harmless."""
        refuse_query(request)
        artifact_delete(actor=request.actor, artifact_id=artifact_id)
        return Response(status=204)


class JobArtifactsApi(ListView):
    """Artifacts of a job, newest first."""

    permission = {"GET": Permission.JOBS_READ}
    serializer_class = ArtifactOutput
    query = ArtifactListQuery

    def rows(self, request: TenantRequest, query: ArtifactListQuery):
        return artifact_list(request.tenant, self.kwargs["job_id"], kind=query.kind or "")

    @extend_schema(operation_id="jobs_artifacts", parameters=[_KIND])
    def get(self, request: TenantRequest, job_id: UUID) -> Response:
        return self.list(request)


class JobPolicyVersionsApi(ListView):
    """Durable policy versions of a job, newest first."""

    permission = {"GET": Permission.JOBS_READ}
    serializer_class = PolicyVersionOutput

    def rows(self, request: TenantRequest, query: PageQuery):
        return policy_version_list(request.tenant, self.kwargs["job_id"])

    @extend_schema(operation_id="jobs_policy_versions")
    def get(self, request: TenantRequest, job_id: UUID) -> Response:
        return self.list(request)


class ArtifactDownloadApi(APIView):
    """The file itself."""

    permission = {"GET": Permission.JOBS_READ}

    @extend_schema(
        operation_id="artifacts_download",
        parameters=[_RANGE],
        responses={(status, kind): _FILE for status in (200, 206) for kind in MEDIA_SUFFIXES},
    )
    def get(self, request: TenantRequest, artifact_id: UUID) -> HttpResponseBase:
        """Download with its media type, whole or in part; `X-Checksum-SHA256` is the whole file's SHA-256."""
        refuse_query(request)
        return download(artifact_get(request.tenant, artifact_id), request.headers)
