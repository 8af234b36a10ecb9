"""Telling a tenant's systems: an event and its deliveries are rows in the transaction of their cause."""

from typing import Any
from uuid import UUID

from django.utils import timezone

from tenants.scope import platform_scope
from tenants.webhooks.events import EventType
from tenants.webhooks.models import WebhookDelivery, WebhookEndpoint, WebhookEvent
from tenants.webhooks.nudges import nudge_on_commit


def webhook_event(tenant_id: UUID, type: str, data: dict[str, Any]) -> WebhookEvent | None:
    """Tell every endpoint of a tenant that wants ``type`` about it; None if there is none.

    Call it inside the transaction of the cause: what is rolled back is told to nobody. ``data`` holds JSON values
    and no secret. The sending happens after the commit and never fails the caller. Raises ValueError for a type
    that `EventType` does not know.
    """
    kind = EventType(type)
    with platform_scope():
        listening = WebhookEndpoint.objects.filter(tenant_id=tenant_id, disabled_at=None).order_by("pk")
        endpoints = [endpoint for endpoint in listening if not endpoint.events or kind in endpoint.events]
        return event_write(tenant_id, kind, data, endpoints) if endpoints else None


def event_write(
    tenant_id: UUID, kind: EventType, data: dict[str, Any], endpoints: list[WebhookEndpoint]
) -> WebhookEvent:
    """The rows of one event to these endpoints, and the nudge that sends them once they are committed."""
    event = WebhookEvent.objects.create(tenant_id=tenant_id, type=kind, data=data)
    now = timezone.now()
    rows = [
        WebhookDelivery(tenant_id=tenant_id, endpoint=endpoint, event=event, next_try_at=now) for endpoint in endpoints
    ]
    for delivery in WebhookDelivery.objects.bulk_create(rows):
        nudge_on_commit(delivery.pk, tries=0)
    return event
