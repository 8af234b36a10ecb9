"""Reads of the webhooks app, inside the tenant's scope."""

from uuid import UUID

from django.db.models import QuerySet

from tenants.access import access_row
from tenants.models import Tenant
from tenants.webhooks.models import WebhookDelivery, WebhookEndpoint


def endpoint_list(tenant: Tenant) -> QuerySet[WebhookEndpoint]:
    """The tenant's endpoints, disabled ones too."""
    return WebhookEndpoint.objects.filter(tenant=tenant)


def endpoint_get(tenant: Tenant, webhook_id: UUID) -> WebhookEndpoint:
    """One endpoint. Raises the 404 of ``not_found``."""
    return access_row(endpoint_list(tenant), "webhook", pk=webhook_id)


def delivery_list(
    tenant: Tenant, *, webhook_id: UUID | None = None, state: str | None = None, type: str | None = None
) -> QuerySet[WebhookDelivery]:
    """Deliveries of the last 30 days, filtered by what is given."""
    wanted = {"endpoint": webhook_id, "state": state, "event__type": type}
    rows = WebhookDelivery.objects.filter(tenant=tenant).select_related("event")
    return rows.filter(**{name: value for name, value in wanted.items() if value is not None})


def delivery_get(tenant: Tenant, delivery_id: UUID) -> WebhookDelivery:
    """One delivery. Raises the 404 of ``not_found``."""
    return access_row(delivery_list(tenant), "delivery", pk=delivery_id)
