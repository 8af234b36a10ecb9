"""REST: submit, list, read and cancel jobs, and have their recordings taken in again."""

from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.described import OPTIONAL_MATCH, BulkBody, BulkOutput, expected_version
from jobs.api.examples import EXAMPLES, SUBMIT_DESCRIPTION
from jobs.api.outputs import AnyJobSpec, JobDetailOutput, JobOutput
from jobs.api.paging import JobPagination
from jobs.api.queries import FOUND_IN, JOB_KINDS, JobListQuery
from jobs.models import Job
from jobs.selectors.filters import STATE_LIVE, JobSort
from jobs.selectors.jobs import job_get, job_list, owner_id
from jobs.services.bulk import jobs_act
from jobs.services.cancel import job_cancel
from jobs.services.describe import JobDescription, job_describe
from jobs.services.import_retry import import_retry
from jobs.services.submit import job_submit
from jobs.states import JobState
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, NoQuery, refuse_query
from tenants.permissions import Permission
from tenants.preconditions import etag_of
from tenants.requests import TenantRequest


class JobListApi(ListView):
    """Jobs of the tenant."""

    permission = {"GET": Permission.JOBS_READ, "POST": Permission.JOBS_WRITE}
    serializer_class = JobOutput
    pagination_class = JobPagination
    query = JobListQuery

    def rows(self, request: TenantRequest, query: JobListQuery):
        owner = owner_id(request.tenant, query.owner) if query.owner else None
        return job_list(request.tenant, query.wanted(owner))

    @extend_schema(
        operation_id="jobs_list",
        parameters=[
            OpenApiParameter("state", str, enum=[*JobState, STATE_LIVE]),
            OpenApiParameter("kind", str, enum=list(JOB_KINDS)),
            OpenApiParameter("head", str, description="Type of the action head."),
            OpenApiParameter("base_model", str),
            OpenApiParameter("owner", str, description="E-mail address of who submitted it."),
            OpenApiParameter("tag", str, description="One that the job has."),
            OpenApiParameter("project", str, description="Slug of a project."),
            OpenApiParameter("priority", int, description="0 to 9."),
            OpenApiParameter("archived", str, enum=["false", "true", "all"], description="Default: false."),
            OpenApiParameter("q", str, description=FOUND_IN),
            OpenApiParameter("sort", str, enum=list(JobSort), description="Default: newest first."),
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

    permission = {"GET": Permission.JOBS_READ, "PATCH": Permission.JOBS_WRITE}

    @extend_schema(operation_id="jobs_get", responses=JobDetailOutput)
    def get(self, request: TenantRequest, job_id: UUID) -> Response:
        """The ETag is the version of what people say of the job (`name`, `note`, `tags`, `archived`), for PATCH."""
        refuse_query(request)
        return _described(job_get(request.tenant, job_id))

    @extend_schema(
        operation_id="jobs_describe",
        parameters=[OPTIONAL_MATCH],
        request=JobDescription,
        responses=JobDetailOutput,
    )
    def patch(self, request: TenantRequest, job_id: UUID) -> Response:
        """Change what people say of a job. With `If-Match`, only if nobody else did so meanwhile (412 otherwise)."""
        refuse_query(request)
        job = job_get(request.tenant, job_id)
        wanted = parse_body(JobDescription, request.data)
        changes = wanted.model_dump(exclude_none=True)
        expected = expected_version(request, job.described)
        return _described(
            job_describe(by=request.actor, tenant=request.tenant, job_id=job_id, expected=expected, **changes)
        )


class JobBulkApi(APIView):
    """One act on many jobs."""

    permission = {"POST": Permission.JOBS_WRITE}

    @extend_schema(operation_id="jobs_bulk", parameters=[KEY_PARAMETER], request=BulkBody, responses={200: BulkOutput})
    def post(self, request: TenantRequest) -> Response:
        """Cancel, archive, unarchive, tag or untag up to 200 jobs. Each succeeds or is refused on its own."""
        refuse_query(request)
        body = parse_body(BulkBody, request.data)

        def act() -> Response:
            told = jobs_act(
                by=request.actor, tenant=request.tenant, job_ids=body.jobs, action=body.action, tag=body.tag
            )
            return Response(BulkOutput({"results": told}).data)

        return idempotent(request, act)


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


def _described(job: Job) -> Response:
    return Response(_detail(job), headers={"ETag": etag_of(job.described)})
