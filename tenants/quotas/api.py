"""REST: limits, how much of them is used, and those a tenant sets its own projects."""

from typing import Annotated
from uuid import UUID

from django.db import transaction
from drf_spectacular.utils import extend_schema
from pydantic import AwareDatetime, Field
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants.access import access_row, not_found
from tenants.bodies import parse_body
from tenants.listing import refuse_query
from tenants.models import Project
from tenants.permissions import Permission
from tenants.preconditions import MATCH_PARAMETER, etag_of, require_match, tagged
from tenants.quotas.models import Resource
from tenants.quotas.outputs import QuotaOutput, QuotasOutput, project_lines, quota_line, quota_lines, version_of
from tenants.quotas.services import LIMIT_MAX, PROJECT_RESOURCES, quota_for_update, quota_set, quota_withdraw
from tenants.requests import TenantRequest
from tenants.selectors import project_list


class ProjectQuotaInput(Message):
    """A limit of one project, beside the tenant's."""

    limit: Annotated[int, Field(ge=0, le=LIMIT_MAX, description="In the resource's unit.")]
    expires_at: Annotated[
        AwareDatetime | None, Field(description="Until then; after that the limit before it counts again.")
    ] = None
    reason: Annotated[str, Field(max_length=500)] = ""


class QuotaListApi(APIView):
    """Limits of the tenant and of its projects."""

    permission = {"GET": Permission.QUOTAS_READ}

    @extend_schema(operation_id="quotas_list", responses=QuotasOutput)
    def get(self, request: TenantRequest) -> Response:
        """Every limit of the tenant and those its projects have, with what is used of each now.

        A key bound to a project is told of that project only: each limit it can have, set or not.
        """
        refuse_query(request)
        bound = request.actor.project
        if bound is not None:
            lines = project_lines(request.tenant, bound)
        else:
            lines = quota_lines(request.tenant, list(project_list(request.actor).order_by("slug")))
        return Response(QuotasOutput({"results": lines}).data)


class ProjectQuotaApi(APIView):
    """One limit of one project. Resources: running_jobs, queued_jobs, slots, env_seats, compute and money."""

    permission = {
        "GET": Permission.QUOTAS_READ,
        "PUT": Permission.QUOTAS_MANAGE,
        "DELETE": Permission.QUOTAS_MANAGE,
    }

    @extend_schema(operation_id="project_quotas_get", responses=QuotaOutput)
    def get(self, request: TenantRequest, project_id: UUID, resource: str) -> Response:
        """The limit and its ETag; `limit` is null where none is set."""
        refuse_query(request)
        line = quota_line(request.tenant, _project(request, project_id), _resource(resource))
        return tagged(request, line.etag, QuotaOutput(line).data)

    @extend_schema(
        operation_id="project_quotas_set",
        parameters=[MATCH_PARAMETER],
        request=ProjectQuotaInput,
        responses=QuotaOutput,
    )
    def put(self, request: TenantRequest, project_id: UUID, resource: str) -> Response:
        """Set the limit; it takes effect at once. What runs goes on, unless its compute or money is used up by it."""
        refuse_query(request)
        project, wanted = _project(request, project_id), _resource(resource)
        body = parse_body(ProjectQuotaInput, request.data)
        with transaction.atomic():
            require_match(request, version_of(quota_for_update(request.tenant, wanted, project)))
            quota_set(
                by=request.actor,
                tenant=request.tenant,
                project=project,
                resource=wanted,
                limit=body.limit,
                expires_at=body.expires_at,
                reason=body.reason,
            )
        line = quota_line(request.tenant, project, wanted)
        return Response(QuotaOutput(line).data, headers={"ETag": etag_of(line.etag)})

    @extend_schema(operation_id="project_quotas_withdraw", parameters=[MATCH_PARAMETER], responses={204: None})
    def delete(self, request: TenantRequest, project_id: UUID, resource: str) -> Response:
        """Withdraw the limit: the tenant's alone counts. 204 as well where there was none."""
        refuse_query(request)
        project, wanted = _project(request, project_id), _resource(resource)
        with transaction.atomic():
            require_match(request, version_of(quota_for_update(request.tenant, wanted, project)))
            quota_withdraw(by=request.actor, tenant=request.tenant, resource=wanted, project=project)
        return Response(status=204)


def _project(request: TenantRequest, project_id: UUID) -> Project:
    return access_row(project_list(request.actor), "project", pk=project_id)


def _resource(name: str) -> Resource:
    """Raises the 404 of a missing page for a name that no project can be limited in."""
    if name not in set(PROJECT_RESOURCES):
        raise not_found("limit of a project")
    return Resource(name)
