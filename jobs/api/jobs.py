"""REST: submit, list, read and cancel jobs, and have their recordings taken in again."""

from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.examples import EXAMPLES, SUBMIT_DESCRIPTION
from jobs.api.outputs import AnyJobSpec, JobDetailOutput, JobOutput
from jobs.api.queries import JOB_KINDS, JobListQuery
from jobs.models import Job
from jobs.selectors.jobs import job_get, job_list
from jobs.services.cancel import job_cancel
from jobs.services.import_retry import import_retry
from jobs.services.submit import job_submit
from jobs.states import JobState
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, NoQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest


class JobListApi(ListView):
    """Jobs of the tenant."""

    permission = {"GET": Permission.JOBS_READ, "POST": Permission.JOBS_WRITE}
    serializer_class = JobOutput
    query = JobListQuery

    def rows(self, request: TenantRequest, query: JobListQuery):
        return job_list(
            request.tenant,
            state=query.state or "",
            kind=query.kind or "",
            query=query.q,
            project=query.project,
            priority=query.priority,
        )

    @extend_schema(
        operation_id="jobs_list",
        parameters=[
            OpenApiParameter("state", str, enum=[state.value for state in JobState]),
            OpenApiParameter("kind", str, enum=list(JOB_KINDS)),
            OpenApiParameter("project", str, description="Slug of a project."),
            OpenApiParameter("priority", int, description="0 to 9."),
            OpenApiParameter("q", str, description="Part of the name."),
        ],
    )
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="jobs_submit",
        description=SUBMIT_DESCRIPTION,
        examples=EXAMPLES,
        parameters=[KEY_PARAMETER],
        request=AnyJobSpec,
        responses={(202, "application/json"): JobDetailOutput},
    )
    def post(self, request: TenantRequest) -> Response:
        """Queue a job. 202: it is durable and starts when the runtime takes it."""
        refuse_query(request)

        def submit() -> Response:
            job = job_submit(tenant=request.tenant, actor=request.actor, spec=request.data)
            return Response(_detail(job), status=202, headers={"Location": f"/api/v1/jobs/{job.pk}"})

        return idempotent(request, submit)


class JobApi(APIView):
    """One job."""

    permission = {"GET": Permission.JOBS_READ}

    @extend_schema(operation_id="jobs_get", responses=JobDetailOutput)
    def get(self, request: TenantRequest, job_id: UUID) -> Response:
        refuse_query(request)
        return Response(_detail(job_get(request.tenant, job_id)))


class JobCancelApi(APIView):
    """Cancelling."""

    permission = {"POST": Permission.JOBS_WRITE}

    @extend_schema(operation_id="jobs_cancel", request=None, responses={202: JobDetailOutput})
    def post(self, request: TenantRequest, job_id: UUID) -> Response:
        """Ask a job to stop; repeating is harmless. 409 if it has already succeeded or failed."""
        refuse_query(request)
        parse_body(NoQuery, request.data or {})
        return Response(_detail(job_cancel(tenant=request.tenant, job_id=job_id, by=request.actor)), status=202)


class JobImportApi(APIView):
    """Taking recorded episodes in."""

    permission = {"POST": Permission.DATASETS_WRITE}

    @extend_schema(operation_id="jobs_import_retry", request=None, responses={202: JobDetailOutput})
    def post(self, request: TenantRequest, job_id: UUID) -> Response:
        """Try an import anew that was given up; repeating is harmless. 409 if the job has published no dataset."""
        refuse_query(request)
        parse_body(NoQuery, request.data or {})
        return Response(_detail(import_retry(tenant=request.tenant, job_id=job_id, by=request.actor)), status=202)


def _detail(job: Job) -> dict[str, object]:
    return dict(JobDetailOutput(job).data)
