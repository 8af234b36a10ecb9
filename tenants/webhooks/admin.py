"""Operators' lists of webhooks. Secrets are not shown, sealed or not."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from tenants.admin_base import OfTenant, ReadOnly
from tenants.admin_confirm import confirm_then
from tenants.webhooks.endpoints import webhook_redeliver
from tenants.webhooks.models import WebhookDelivery, WebhookEndpoint, WebhookEvent


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(ReadOnly):
    list_display = ["url", "tenant", "failing_since", "disabled_at", "disabled_reason", "created_by", "created_at"]
    list_filter = [
        ("failing_since", admin.EmptyFieldListFilter),
        ("disabled_at", admin.EmptyFieldListFilter),
        OfTenant,
    ]
    list_select_related = ["tenant", "created_by"]
    search_fields = ["url", "tenant__name"]
    ordering = ["-created_at"]
    exclude = ["secret", "former_secret"]


@admin.register(WebhookEvent)
class WebhookEventAdmin(ReadOnly):
    list_display = ["created_at", "type", "tenant"]
    list_filter = ["type", OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["=id", "tenant__name"]
    ordering = ["-created_at"]


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnly):
    list_display = [
        "created_at",
        "tenant",
        "event_type",
        "endpoint",
        "state",
        "attempts",
        "response_status",
        "error",
        "next_try_at",
        "delivered_at",
    ]
    list_filter = ["state", "event__type", OfTenant]
    list_select_related = ["tenant", "endpoint", "event"]
    search_fields = ["=id", "=event__id", "endpoint__url", "tenant__name"]
    ordering = ["-created_at"]

    actions = ["redeliver"]

    def has_act_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("webhooks.change_webhookdelivery"))

    @admin.action(description="Send again", permissions=["act"])
    def redeliver(self, request: HttpRequest, chosen: "QuerySet[WebhookDelivery]") -> HttpResponse | None:
        return confirm_then(
            self,
            request,
            chosen.select_related("event", "endpoint"),
            action="redeliver",
            question="Send these again, with the same id and all tries?",
            button="Send again",
            act=webhook_redeliver,
            label=lambda row: f"{row.event.type} to {row.endpoint.url}",
        )

    @admin.display(description="Event", ordering="event__type")
    def event_type(self, delivery: WebhookDelivery) -> str:
        return delivery.event.type
