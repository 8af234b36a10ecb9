"""REST: what a job published. The runtime keeps the bytes; downloads stream through."""

import asyncio
from uuid import UUID

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import runtime_client
from jobs.api.outputs import ArtifactOutput, PolicyVersionOutput
from jobs.models import Artifact
from jobs.runtime_client import ArtifactStream, RuntimeRefused, RuntimeUnreachable
from jobs.selectors.jobs import artifact_get, artifact_list, policy_version_list
from tenants.errors import ApplicationError
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest


class JobArtifactsApi(ListView):
    """Artifacts of a job, newest first."""

    permission = {"GET": Permission.JOBS_READ}
    serializer_class = ArtifactOutput

    def rows(self, request: TenantRequest, query: PageQuery):
        return artifact_list(request.tenant, self.kwargs["job_id"])

    @extend_schema(operation_id="jobs_artifacts")
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
    """The archive itself."""

    permission = {"GET": Permission.JOBS_READ}

    @extend_schema(operation_id="artifacts_download", responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: TenantRequest, artifact_id: UUID) -> HttpResponseBase:
        """Download the zip; `X-Checksum-SHA256` is its SHA-256 as the runtime published it."""
        refuse_query(request)
        artifact = artifact_get(request.tenant, artifact_id)
        stream = _open(artifact)
        response = StreamingHttpResponse(_ReadAside(stream), content_type="application/zip")
        response["Content-Disposition"] = content_disposition_header(True, _file_name(artifact))
        response["Content-Length"] = str(artifact.size_bytes)
        response["X-Content-Type-Options"] = "nosniff"
        response["X-Checksum-SHA256"] = artifact.sha256
        response["ETag"] = f'"{artifact.sha256}"'
        return response


def _open(artifact: Artifact) -> ArtifactStream:
    try:
        return runtime_client.connect().artifact(artifact.runtime_key)
    except RuntimeUnreachable as error:
        detail = "The GPU runtime, which keeps the file, does not answer. Try again later."
        raise ApplicationError(code="runtime_unreachable", status=503, detail=detail) from error
    except RuntimeRefused as error:
        detail = f"The runtime does not hand out this file: {error.message}"
        raise ApplicationError(code="artifact_unavailable", status=502, detail=detail) from error


def _file_name(artifact: Artifact) -> str:
    stem = get_valid_filename(f"{artifact.job.name}-{artifact.kind}-v{artifact.policy_version}".replace("/", "-"))
    return f"{stem}.zip"


class _ReadAside:
    """Reads in a thread, chunk by chunk: the server's loop never waits and memory stays flat.

    Django closes it with the response, also when a reader leaves before the first byte.
    """

    def __init__(self, stream: ArtifactStream) -> None:
        self._chunks = iter(stream.chunks)
        self.close = stream.close

    def __aiter__(self) -> "_ReadAside":
        return self

    async def __anext__(self) -> bytes:
        chunk = await asyncio.to_thread(next, self._chunks, None)
        if chunk is None:
            raise StopAsyncIteration
        return chunk
