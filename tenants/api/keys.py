"""REST: API keys."""

from decimal import Decimal
from typing import Annotated
from uuid import UUID

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.ordering import AmountText
from tenants import services
from tenants.api.roles import PERMISSIONS, ROLES, Moment, RoleName
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.models import ApiKey
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.selectors import key_list


class KeyInput(Message):
    """Make an API key; it can do no more than you can."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    role: RoleName = "researcher"
    scopes: Annotated[
        tuple[Permission, ...],
        Field(max_length=len(Permission), description="Permissions it is narrowed to. Empty: all of its role's."),
    ] = ()
    project: Annotated[
        str | None, Field(max_length=50, description="Slug of the only project it submits to and whose jobs it sees.")
    ] = None
    spend_cap: Annotated[
        AmountText | None, Field(description="What its jobs may cost in all, in the currency of your plan.")
    ] = None
    expires_at: Moment | None = None


class KeyOutput(serializers.ModelSerializer[ApiKey]):
    created_by = serializers.EmailField(source="created_by.email", default=None, allow_null=True)
    role = serializers.ChoiceField(ROLES)
    scopes = serializers.ListField(child=serializers.ChoiceField(PERMISSIONS))
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    spend_cap = serializers.SerializerMethodField()

    class Meta:
        model = ApiKey
        fields = [
            *("id", "name", "role", "scopes", "project", "spend_cap", "prefix", "created_by"),
            *("created_at", "last_used_at", "expires_at", "revoked_at"),
        ]

    def get_spend_cap(self, key: ApiKey) -> str | None:
        return f"{key.spend_cap.normalize():f}" if key.spend_cap is not None else None


class NewKeyOutput(KeyOutput):
    key = serializers.CharField(help_text="Shown once.", allow_null=True, default=None)

    class Meta(KeyOutput.Meta):
        fields = [*KeyOutput.Meta.fields, "key"]


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
                actor=request.actor,
                name=body.name,
                role=body.role,
                scopes=body.scopes,
                project=body.project,
                spend_cap=Decimal(body.spend_cap) if body.spend_cap is not None else None,
                expires_at=body.expires_at,
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
