"""REST: invitations. They are accepted on a page, by the person who got the letter."""

from uuid import UUID

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from gpu_runtime.protocol.base import Message
from tenants import services
from tenants.api.roles import ROLES, EmailText, RoleName
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.models import Invitation
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.selectors import invitation_list
from tenants.whole_tenant import ForTheWholeTenant


class InvitationInput(Message):
    """Offer somebody a role, no stronger than yours."""

    email: EmailText
    role: RoleName


class InvitationOutput(serializers.ModelSerializer[Invitation]):
    invited_by = serializers.EmailField(source="invited_by.email", default=None, allow_null=True)
    role = serializers.ChoiceField(ROLES)

    class Meta:
        model = Invitation
        fields = ["id", "email", "role", "invited_by", "created_at", "expires_at", "accepted_at", "revoked_at"]


class NewInvitationOutput(InvitationOutput):
    token = serializers.CharField(help_text="Shown once; the letter has it too.", allow_null=True, default=None)
    accept_url = serializers.CharField(help_text="Shown once.", allow_null=True, default=None)

    class Meta(InvitationOutput.Meta):
        fields = [*InvitationOutput.Meta.fields, "token", "accept_url"]


class InvitationListApi(ForTheWholeTenant, ListView):
    """Invitations, whatever became of them."""

    permission = {"GET": Permission.MEMBERS_READ, "POST": Permission.MEMBERS_MANAGE}
    serializer_class = InvitationOutput

    def rows(self, request: TenantRequest, query: PageQuery):
        return invitation_list(request.actor)

    @extend_schema(operation_id="invitations_list")
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="invitations_create",
        parameters=[KEY_PARAMETER],
        request=InvitationInput,
        responses={201: NewInvitationOutput},
    )
    def post(self, request: TenantRequest) -> Response:
        """Invite an address: it gets a letter with a link that works once, for seven days."""
        refuse_query(request)
        body = parse_body(InvitationInput, request.data)

        def link(token: str) -> str:
            return request.build_absolute_uri(reverse("invitation_accept", args=[token]))

        def create() -> Response:
            issued = services.invitation_create(actor=request.actor, email=body.email, role=body.role, link=link)
            once = {"token": issued.token, "accept_url": link(issued.token)}
            return Response({**InvitationOutput(issued.row).data, **once}, status=201)

        return idempotent(request, create, secret_fields=("token", "accept_url"))


class InvitationApi(ForTheWholeTenant):
    """One invitation."""

    permission = {"DELETE": Permission.MEMBERS_MANAGE}

    @extend_schema(operation_id="invitations_revoke", responses={204: None})
    def delete(self, request: TenantRequest, invitation_id: UUID) -> Response:
        """Take it back; repeating is harmless. 409 if it was accepted."""
        refuse_query(request)
        services.invitation_revoke(actor=request.actor, invitation_id=invitation_id)
        return Response(status=204)
