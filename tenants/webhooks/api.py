"""REST: endpoints that are told of events."""

from typing import Annotated, Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework import serializers
from rest_framework.response import Response

from gpu_runtime.protocol.base import Message
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.webhooks import endpoints, selectors
from tenants.webhooks.delivery_api import DeliveryDetailOutput, accepted, refuse_input
from tenants.webhooks.events import EventType
from tenants.webhooks.models import WebhookEndpoint
from tenants.whole_tenant import ForTheWholeTenant

Url = Annotated[str, Field(min_length=1, max_length=500)]
Events = Annotated[list[EventType], Field(max_length=len(EventType))]


class WebhookInput(Message):
    """Where to send, and what: no ``events`` means all, those of later versions too."""

    url: Url
    events: Events = []


class WebhookPatch(Message):
    """What to change; the rest stays."""

    url: Url | None = None
    events: Events | None = None
    enabled: bool | None = None


class WebhookOutput(serializers.ModelSerializer[WebhookEndpoint]):
    events = serializers.ListField(child=serializers.CharField())
    enabled = serializers.SerializerMethodField()

    class Meta:
        model = WebhookEndpoint
        fields = [
            "id",
            "url",
            "events",
            "enabled",
            "disabled_at",
            "disabled_reason",
            "failing_since",
            "former_until",
            "created_at",
        ]
        extra_kwargs = {
            "failing_since": {"help_text": "No delivery has succeeded since then; null: the last one did."},
            "former_until": {"help_text": "Until then the secret before the present one signs too."},
        }

    def get_enabled(self, row: WebhookEndpoint) -> bool:
        return row.disabled_at is None


class NewWebhookOutput(WebhookOutput):
    secret = serializers.CharField(help_text="Shown once.", allow_null=True, default=None)

    class Meta(WebhookOutput.Meta):
        fields = [*WebhookOutput.Meta.fields, "secret"]


class WebhookListApi(ForTheWholeTenant, ListView):
    """The tenant's endpoints."""

    permission = {"GET": Permission.WEBHOOKS_MANAGE, "POST": Permission.WEBHOOKS_MANAGE}
    serializer_class = WebhookOutput

    def rows(self, request: TenantRequest, query: PageQuery) -> Any:
        return selectors.endpoint_list(request.tenant)

    @extend_schema(operation_id="webhooks_list")
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="webhooks_create",
        parameters=[KEY_PARAMETER],
        request=WebhookInput,
        responses={201: NewWebhookOutput},
    )
    def post(self, request: TenantRequest) -> Response:
        """Events are POSTed there as `{type, timestamp, data}`, signed as the Standard Webhooks specification says.

        The headers are `webhook-id` (equal for every try: events may come twice), `webhook-timestamp` and
        `webhook-signature`; any of that specification's libraries verifies them with the endpoint's secret. Answer 2xx
        within five seconds. Anything else is tried again for a day; after five days without a success the endpoint is
        disabled. The address must be `https` and public; redirects are not followed.
        """
        refuse_query(request)
        body = parse_body(WebhookInput, request.data)

        def create() -> Response:
            issued = endpoints.webhook_create(actor=request.actor, url=body.url, events=list(body.events))
            headers = {"Location": f"/api/v1/webhooks/{issued.row.pk}"}
            return Response(_with_secret(issued), status=201, headers=headers)

        return idempotent(request, create, secret_fields=("secret",))


class WebhookApi(ForTheWholeTenant):
    """One endpoint."""

    permission = dict.fromkeys(("GET", "PATCH", "DELETE"), Permission.WEBHOOKS_MANAGE)

    @extend_schema(operation_id="webhooks_get", responses=WebhookOutput)
    def get(self, request: TenantRequest, webhook_id: UUID) -> Response:
        refuse_query(request)
        return Response(WebhookOutput(selectors.endpoint_get(request.tenant, webhook_id)).data)

    @extend_schema(operation_id="webhooks_change", request=WebhookPatch, responses=WebhookOutput)
    def patch(self, request: TenantRequest, webhook_id: UUID) -> Response:
        refuse_query(request)
        body = parse_body(WebhookPatch, request.data)
        row = endpoints.webhook_update(
            actor=request.actor,
            webhook_id=webhook_id,
            url=body.url,
            events=None if body.events is None else list(body.events),
            enabled=body.enabled,
        )
        return Response(WebhookOutput(row).data)

    @extend_schema(operation_id="webhooks_delete", responses={204: None})
    def delete(self, request: TenantRequest, webhook_id: UUID) -> Response:
        refuse_query(request)
        endpoints.webhook_delete(actor=request.actor, webhook_id=webhook_id)
        return Response(status=204)


class WebhookSecretApi(ForTheWholeTenant):
    """Changing the signing secret."""

    permission = {"POST": Permission.WEBHOOKS_MANAGE}

    @extend_schema(
        operation_id="webhooks_rotate_secret",
        parameters=[KEY_PARAMETER],
        request=None,
        responses={201: NewWebhookOutput},
    )
    def post(self, request: TenantRequest, webhook_id: UUID) -> Response:
        """A fresh secret; the one before it signs too for 24 hours."""
        refuse_input(request)

        def rotate() -> Response:
            issued = endpoints.webhook_rotate_secret(actor=request.actor, webhook_id=webhook_id)
            return Response(_with_secret(issued), status=201)

        return idempotent(request, rotate, secret_fields=("secret",))


class WebhookTestApi(ForTheWholeTenant):
    """Trying an endpoint out."""

    permission = {"POST": Permission.WEBHOOKS_MANAGE}

    @extend_schema(
        operation_id="webhooks_test", parameters=[KEY_PARAMETER], request=None, responses={202: DeliveryDetailOutput}
    )
    def post(self, request: TenantRequest, webhook_id: UUID) -> Response:
        """Send an event of type `test`; read its delivery to see how it went."""
        refuse_input(request)

        def test() -> Response:
            return accepted(endpoints.webhook_test(actor=request.actor, webhook_id=webhook_id))

        return idempotent(request, test)


def _with_secret(issued: endpoints.IssuedSecret) -> dict[str, Any]:
    return {**WebhookOutput(issued.row).data, "secret": issued.secret}
