"""Operators' lists of webhooks. Secrets are not shown, sealed or not."""

from django.contrib import admin

from tenants.admin_base import OfTenant, ReadOnly
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

    @admin.display(description="Event", ordering="event__type")
    def event_type(self, delivery: WebhookDelivery) -> str:
        return delivery.event.type
