"""REST: the log of what was sent to a tenant's endpoints, and sending it again."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, NoQuery, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.webhooks import endpoints, selectors
from tenants.webhooks.events import EventType
from tenants.webhooks.models import DeliveryState, WebhookDelivery
from tenants.whole_tenant import ForTheWholeTenant


class DeliveryListQuery(PageQuery):
    """Which deliveries."""

    webhook: UUID | None = None
    state: DeliveryState | None = None
    type: EventType | None = None


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
        refuse_input(request)

        def redeliver() -> Response:
            delivery = selectors.delivery_get(request.tenant, delivery_id)
            return accepted(endpoints.webhook_redeliver(request.actor, delivery))

        return idempotent(request, redeliver)


def refuse_input(request: TenantRequest) -> None:
    """Of a POST that takes nothing but its address."""
    refuse_query(request)
    parse_body(NoQuery, request.data or {})


def accepted(delivery: WebhookDelivery) -> Response:
    """202 and where to follow it."""
    location = f"/api/v1/webhook-deliveries/{delivery.pk}"
    return Response(DeliveryDetailOutput(delivery).data, status=202, headers={"Location": location})
