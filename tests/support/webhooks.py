"""Endpoints of the story's labs, and what is on its way to them."""

from typing import Any

from tenants.scope import platform_scope
from tenants.webhooks.endpoints import webhook_create
from tenants.webhooks.models import WebhookDelivery, WebhookEndpoint
from tenants.webhooks.services import webhook_event
from tests.support.story import Person

URL = "https://hooks.example.org/joynexus"


def make_webhook(person: Person, url: str = URL, **fields: Any) -> WebhookEndpoint:
    """An endpoint of the person's tenant that listens to everything."""
    with platform_scope():
        row = webhook_create(actor=person.actor, url=url, events=[]).row
        if fields:
            WebhookEndpoint.objects.filter(pk=row.pk).update(**fields)
            row.refresh_from_db()
        return row


def make_delivery(person: Person, url: str = URL, **fields: Any) -> WebhookDelivery:
    """A failed delivery to a fresh endpoint of the person's tenant: one that may be sent again."""
    endpoint = make_webhook(person, url)
    webhook_event(person.tenant.pk, "job.succeeded", {"job_id": "1"})
    with platform_scope():
        rows = WebhookDelivery.objects.filter(endpoint=endpoint)
        rows.update(**{"state": "failed", "next_try_at": None, **fields})
        return rows.select_related("endpoint", "event").get()


def reread(delivery: WebhookDelivery) -> WebhookDelivery:
    with platform_scope():
        return WebhookDelivery.objects.select_related("endpoint", "event").get(pk=delivery.pk)
