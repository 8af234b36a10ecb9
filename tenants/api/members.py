"""REST: oneself and members."""

from typing import Any

from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants import services
from tenants.api.roles import ROLES, EmailText, RoleName
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.identity import memberships_of
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.models import Membership
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.selectors import member_list
from tenants.whole_tenant import ForTheWholeTenant


class MemberInput(Message):
    """Add an existing user."""

    email: EmailText
    role: RoleName


class MemberRoleInput(Message):
    """Change a member's role."""

    role: RoleName


class MemberOutput(serializers.ModelSerializer[Membership]):
    email = serializers.EmailField(source="user.email")
    role = serializers.ChoiceField(ROLES)

    class Meta:
        model = Membership
        fields = ["id", "email", "role", "created_at"]


_TENANT_OUTPUT: dict[str, Any] = {
    "id": serializers.UUIDField(),
    "name": serializers.CharField(),
    "role": serializers.CharField(),
}
MeOutput = inline_serializer(
    "Me",
    {
        "email": serializers.EmailField(allow_null=True),
        "key": serializers.CharField(allow_null=True, help_text="Prefix of the API key in use."),
        "project": serializers.CharField(allow_null=True, help_text="The project the API key is bound to."),
        "tenant": inline_serializer("MyTenant", _TENANT_OUTPUT),
        "permissions": serializers.ListField(child=serializers.CharField()),
        "tenants": inline_serializer("MyTenants", _TENANT_OUTPUT, many=True),
    },
)


class MeApi(APIView):
    """Who am I, in which tenant, and what may I do?"""

    permission = {"GET": None}

    @extend_schema(operation_id="me", responses=MeOutput)
    def get(self, request: TenantRequest) -> Response:
        refuse_query(request)
        actor = request.actor
        rows = memberships_of(actor.user) if actor.user and not actor.key else []
        here = {"id": str(actor.tenant.pk), "name": actor.tenant.name, "role": actor.role}
        mine = [{"id": str(row.tenant_id), "name": row.tenant.name, "role": row.role} for row in rows]
        return Response(
            {
                "email": actor.user.email if actor.user else None,
                "key": actor.key.prefix if actor.key else None,
                "project": actor.project.slug if actor.project else None,
                "tenant": here,
                "permissions": sorted(actor.permissions),
                "tenants": mine or [here],
            }
        )


class MemberListApi(ForTheWholeTenant, ListView):
    """The people of a tenant."""

    permission = {"GET": Permission.MEMBERS_READ, "POST": Permission.MEMBERS_MANAGE}
    serializer_class = MemberOutput

    def rows(self, request: TenantRequest, query: PageQuery):
        return member_list(request.actor)

    @extend_schema(operation_id="members_list")
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="members_add", parameters=[KEY_PARAMETER], request=MemberInput, responses={201: MemberOutput}
    )
    def post(self, request: TenantRequest) -> Response:
        refuse_query(request)
        body = parse_body(MemberInput, request.data)

        def add() -> Response:
            row = services.member_add(actor=request.actor, email=body.email, role=body.role)
            return Response(MemberOutput(row).data, status=201)

        return idempotent(request, add)


class MemberApi(ForTheWholeTenant):
    """One member."""

    permission = {"PATCH": Permission.MEMBERS_MANAGE, "DELETE": Permission.MEMBERS_MANAGE}

    @extend_schema(operation_id="members_set_role", request=MemberRoleInput, responses=MemberOutput)
    def patch(self, request: TenantRequest, member_id: int) -> Response:
        refuse_query(request)
        body = parse_body(MemberRoleInput, request.data)
        row = services.member_set_role(actor=request.actor, membership_id=member_id, role=body.role)
        return Response(MemberOutput(row).data)

    @extend_schema(operation_id="members_remove", responses={204: None})
    def delete(self, request: TenantRequest, member_id: int) -> Response:
        """Remove a member; API keys they made in this tenant end at once."""
        refuse_query(request)
        services.member_remove(actor=request.actor, membership_id=member_id)
        return Response(status=204)
