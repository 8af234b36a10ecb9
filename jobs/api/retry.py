"""REST: run an ended job once more."""

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.outputs import JobDetailOutput
from jobs.services.retry import job_retry
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import NoQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest


class JobRetryApi(APIView):
    """Retrying."""

    permission = {"POST": Permission.JOBS_WRITE}

    @extend_schema(
        operation_id="jobs_retry",
        parameters=[KEY_PARAMETER],
        request=None,
        responses={202: JobDetailOutput},
    )
    def post(self, request: TenantRequest, job_id: UUID) -> Response:
        """A new job of the same specification, `cloned_from` this one. 409 unless this one has ended."""
        refuse_query(request)
        parse_body(NoQuery, request.data or {})

        def retry() -> Response:
            job = job_retry(tenant=request.tenant, job_id=job_id, by=request.actor)
            return Response(
                dict(JobDetailOutput(job).data), status=202, headers={"Location": f"/api/v1/jobs/{job.pk}"}
            )

        return idempotent(request, retry)
