"""REST: endpoints that are told of events, and the log of what was sent to them."""

from typing import Annotated, Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants.bodies import parse_body
from tenants.errors import ApplicationError
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, NoQuery, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.webhooks import endpoints, selectors
from tenants.webhooks.events import EventType
from tenants.webhooks.models import DeliveryState, WebhookDelivery, WebhookEndpoint

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


class DeliveryListQuery(PageQuery):
    """Which deliveries."""

    webhook: UUID | None = None
    state: DeliveryState | None = None
    type: EventType | None = None


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


class DeliveryOutput(serializers.ModelSerializer[WebhookDelivery]):
    webhook = serializers.UUIDField(source="endpoint_id")
    event_id = serializers.UUIDField(help_text="The `webhook-id` header: equal for every try and every endpoint.")
    type = serializers.CharField(source="event.type")

    class Meta:
        model = WebhookDelivery
        fields = [
            "id",
            "webhook",
            "event_id",
            "type",
            "state",
            "attempts",
            "next_try_at",
            "response_status",
            "error",
            "duration_ms",
            "created_at",
            "delivered_at",
        ]


class DeliveryDetailOutput(DeliveryOutput):
    data = serializers.JSONField(source="event.data")  # type: ignore[assignment]  # a field's name, not the property

    class Meta(DeliveryOutput.Meta):
        fields = [*DeliveryOutput.Meta.fields, "data"]


class ForTheWholeTenant(APIView):
    """Events tell of every project, so a key that is bound to one may not see where they go."""

    def check_permissions(self, request: Any) -> None:
        super().check_permissions(request)
        if request.actor is not None and request.actor.project is not None:
            detail = "This API key is bound to a project; webhooks are the whole tenant's."
            raise ApplicationError(code="permission_denied", status=403, detail=detail)


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
        _refuse_input(request)

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
        _refuse_input(request)

        def test() -> Response:
            return _accepted(endpoints.webhook_test(actor=request.actor, webhook_id=webhook_id))

        return idempotent(request, test)


class DeliveryListApi(ForTheWholeTenant, ListView):
    """What was sent, and how it went."""

    permission = {"GET": Permission.WEBHOOKS_MANAGE}
    serializer_class = DeliveryOutput
    query = DeliveryListQuery

    def rows(self, request: TenantRequest, query: DeliveryListQuery) -> Any:
        return selectors.delivery_list(request.tenant, webhook_id=query.webhook, state=query.state, type=query.type)

    @extend_schema(
        operation_id="webhook_deliveries_list",
        parameters=[
            OpenApiParameter("webhook", UUID, description="Of one endpoint."),
            OpenApiParameter("state", str, enum=list(DeliveryState.values)),
            OpenApiParameter("type", str, enum=list(EventType.values)),
        ],
    )
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)


class DeliveryApi(ForTheWholeTenant):
    """One delivery with what it tells."""

    permission = {"GET": Permission.WEBHOOKS_MANAGE}

    @extend_schema(operation_id="webhook_deliveries_get", responses=DeliveryDetailOutput)
    def get(self, request: TenantRequest, delivery_id: UUID) -> Response:
        refuse_query(request)
        return Response(DeliveryDetailOutput(selectors.delivery_get(request.tenant, delivery_id)).data)


class RedeliverApi(ForTheWholeTenant):
    """Sending again."""

    permission = {"POST": Permission.WEBHOOKS_MANAGE}

    @extend_schema(
        operation_id="webhook_deliveries_redeliver",
        parameters=[KEY_PARAMETER],
        request=None,
        responses={202: DeliveryDetailOutput},
    )
    def post(self, request: TenantRequest, delivery_id: UUID) -> Response:
        """Send a delivery again that was delivered or given up. 409 while it is on its way."""
        _refuse_input(request)

        def redeliver() -> Response:
            delivery = selectors.delivery_get(request.tenant, delivery_id)
            return _accepted(endpoints.webhook_redeliver(request.actor, delivery))

        return idempotent(request, redeliver)


def _refuse_input(request: TenantRequest) -> None:
    refuse_query(request)
    parse_body(NoQuery, request.data or {})


def _with_secret(issued: endpoints.IssuedSecret) -> dict[str, Any]:
    return {**WebhookOutput(issued.row).data, "secret": issued.secret}


def _accepted(delivery: WebhookDelivery) -> Response:
    location = f"/api/v1/webhook-deliveries/{delivery.pk}"
    return Response(DeliveryDetailOutput(delivery).data, status=202, headers={"Location": location})
