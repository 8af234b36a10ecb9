"""REST: projects."""

from typing import Annotated
from uuid import UUID

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants import services
from tenants.access import access_row
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, NoQuery, PageQuery, refuse_query
from tenants.models import Project
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.selectors import project_list

ProjectName = Annotated[str, Field(min_length=1, max_length=200)]


class ProjectInput(Message):
    """A new project; without a slug it is made of the name."""

    name: ProjectName
    slug: Annotated[str | None, Field(min_length=1, max_length=50, pattern=r"^[a-z0-9][a-z0-9-]*$")] = None


class ProjectNameInput(Message):
    """What people call it; the slug stays."""

    name: ProjectName


class ProjectOutput(serializers.ModelSerializer[Project]):
    created_by = serializers.EmailField(source="created_by.email", default=None, allow_null=True)

    class Meta:
        model = Project
        fields = ["id", "name", "slug", "created_by", "created_at", "archived_at"]


class ProjectListApi(ListView):
    """Projects of the tenant, archived ones too; a key bound to a project sees that one."""

    permission = {"GET": Permission.PROJECTS_READ, "POST": Permission.PROJECTS_MANAGE}
    serializer_class = ProjectOutput

    def rows(self, request: TenantRequest, query: PageQuery):
        return project_list(request.actor).select_related("created_by")

    @extend_schema(operation_id="projects_list")
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="projects_create",
        parameters=[KEY_PARAMETER],
        request=ProjectInput,
        responses={201: ProjectOutput},
    )
    def post(self, request: TenantRequest) -> Response:
        refuse_query(request)
        body = parse_body(ProjectInput, request.data)

        def create() -> Response:
            row = services.project_create(actor=request.actor, name=body.name, slug=body.slug)
            return Response(ProjectOutput(row).data, status=201)

        return idempotent(request, create)


class ProjectApi(APIView):
    """One project."""

    permission = {"GET": Permission.PROJECTS_READ, "PATCH": Permission.PROJECTS_MANAGE}

    @extend_schema(operation_id="projects_get", responses=ProjectOutput)
    def get(self, request: TenantRequest, project_id: UUID) -> Response:
        refuse_query(request)
        return Response(ProjectOutput(access_row(project_list(request.actor), "project", pk=project_id)).data)

    @extend_schema(operation_id="projects_rename", request=ProjectNameInput, responses=ProjectOutput)
    def patch(self, request: TenantRequest, project_id: UUID) -> Response:
        refuse_query(request)
        body = parse_body(ProjectNameInput, request.data)
        return Response(
            ProjectOutput(services.project_rename(actor=request.actor, project_id=project_id, name=body.name)).data
        )


class ProjectArchiveApi(APIView):
    """Archiving."""

    permission = {"POST": Permission.PROJECTS_MANAGE}

    @extend_schema(operation_id="projects_archive", request=None, responses=ProjectOutput)
    def post(self, request: TenantRequest, project_id: UUID) -> Response:
        """Take no new jobs and keys; its keys end. Repeating is harmless. 409 for the default project."""
        refuse_query(request)
        parse_body(NoQuery, request.data or {})
        return Response(ProjectOutput(services.project_archive(actor=request.actor, project_id=project_id)).data)
