"""REST: oneself, members and API keys."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from drf_spectacular.utils import extend_schema, inline_serializer
from pydantic import AfterValidator, AwareDatetime, Field
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants import services
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.identity import memberships_of
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.models import ApiKey, Membership, Role
from tenants.permissions import Permission, permissions_of
from tenants.requests import TenantRequest
from tenants.selectors import key_list, member_list

RoleName = Literal["owner", "admin", "researcher", "viewer", "billing"]
ROLES = [(role, role) for role in Role.values]
assert set(get_args(RoleName)) == set(Role.values)


def _in_utc(moment: datetime) -> datetime:
    """The same moment in UTC, as databases keep it. Raises ValueError outside the years they know."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment must lie in the years 1 to 9999, in UTC") from None


class MemberInput(Message):
    """Add an existing user."""

    email: Annotated[str, Field(min_length=3, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")]
    role: RoleName


class MemberRoleInput(Message):
    """Change a member's role."""

    role: RoleName


class KeyInput(Message):
    """Make an API key; it can do no more than you can."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    role: RoleName = "researcher"
    expires_at: Annotated[AwareDatetime, AfterValidator(_in_utc)] | None = None


class MemberOutput(serializers.ModelSerializer[Membership]):
    email = serializers.EmailField(source="user.email")
    role = serializers.ChoiceField(ROLES)

    class Meta:
        model = Membership
        fields = ["id", "email", "role", "created_at"]


class KeyOutput(serializers.ModelSerializer[ApiKey]):
    created_by = serializers.EmailField(source="created_by.email", default=None)
    role = serializers.ChoiceField(ROLES)

    class Meta:
        model = ApiKey
        fields = [
            "id",
            "name",
            "role",
            "prefix",
            "created_by",
            "created_at",
            "last_used_at",
            "expires_at",
            "revoked_at",
        ]


class NewKeyOutput(KeyOutput):
    key = serializers.CharField(help_text="Shown once.", allow_null=True, default=None)

    class Meta(KeyOutput.Meta):
        fields = [*KeyOutput.Meta.fields, "key"]


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
                "tenant": here,
                "permissions": sorted(permissions_of(actor.role)),
                "tenants": mine or [here],
            }
        )


class MemberListApi(ListView):
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


class MemberApi(APIView):
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
        refuse_query(request)
        services.member_remove(actor=request.actor, membership_id=member_id)
        return Response(status=204)


class KeyListApi(ListView):
    """API keys: all of the tenant's for those who manage members, otherwise one's own."""

    permission = {"GET": Permission.KEYS_MANAGE, "POST": Permission.KEYS_MANAGE}
    serializer_class = KeyOutput

    def rows(self, request: TenantRequest, query: PageQuery):
        return key_list(request.actor)

    @extend_schema(operation_id="keys_list")
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="keys_create", parameters=[KEY_PARAMETER], request=KeyInput, responses={201: NewKeyOutput}
    )
    def post(self, request: TenantRequest) -> Response:
        refuse_query(request)
        body = parse_body(KeyInput, request.data)

        def create() -> Response:
            issued = services.key_create(
                actor=request.actor, name=body.name, role=body.role, expires_at=body.expires_at
            )
            return Response({**KeyOutput(issued.row).data, "key": issued.text}, status=201)

        return idempotent(request, create, secret_fields=("key",))


class KeyApi(APIView):
    """One API key."""

    permission = {"DELETE": Permission.KEYS_MANAGE}

    @extend_schema(operation_id="keys_revoke", responses={204: None})
    def delete(self, request: TenantRequest, key_id: UUID) -> Response:
        refuse_query(request)
        services.key_revoke(actor=request.actor, key_id=key_id)
        return Response(status=204)
