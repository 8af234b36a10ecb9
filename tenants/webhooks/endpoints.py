"""What a tenant's people do with their endpoints: make, change, rotate, disable, try out, send again."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from tenants.access import access_row
from tenants.audit.services import audit
from tenants.errors import ApplicationError, invalid
from tenants.identity import Actor
from tenants.models import Tenant, User
from tenants.scope import platform_scope
from tenants.webhooks.addresses import Forbidden, target_of
from tenants.webhooks.deliveries import give_up_waiting
from tenants.webhooks.events import SUBSCRIBABLE, EventType
from tenants.webhooks.models import DeliveryState, WebhookDelivery, WebhookEndpoint
from tenants.webhooks.nudges import nudge_on_commit
from tenants.webhooks.sealing import new_secret, seal
from tenants.webhooks.selectors import endpoint_list
from tenants.webhooks.services import event_write

ENDPOINTS_MAX = 20  # of one tenant
FORMER_SECRET_FOR = timedelta(hours=24)
_BY_HAND = "disabled by its owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedSecret:
    """An endpoint and its fresh signing secret, which is shown once."""

    row: WebhookEndpoint
    secret: str


@transaction.atomic
def webhook_create(*, actor: Actor, url: str, events: list[str]) -> IssuedSecret:
    """A new endpoint. ``events`` empty: all, those of later versions too. Raises 422 for addresses and types
    that are not allowed, 409 when the tenant has as many as it may."""
    _require_sendable(url)
    chosen = _chosen(events)
    Tenant.objects.select_for_update(no_key=True).get(pk=actor.tenant.pk)
    if WebhookEndpoint.objects.filter(tenant=actor.tenant).count() >= ENDPOINTS_MAX:
        detail = f"A tenant may have {ENDPOINTS_MAX} endpoints; delete one first."
        raise ApplicationError(code="too_many_webhooks", status=409, detail=detail)
    secret = new_secret()
    row = WebhookEndpoint.objects.create(
        tenant=actor.tenant, url=url, events=chosen, secret=seal(secret), created_by=actor.user
    )
    audit(by=actor, verb="webhook.created", target=row, tenant=actor.tenant, after={"url": url, "events": chosen})
    return IssuedSecret(row=row, secret=secret)


@transaction.atomic
def webhook_update(
    *,
    actor: Actor,
    webhook_id: UUID,
    url: str | None = None,
    events: list[str] | None = None,
    enabled: bool | None = None,
) -> WebhookEndpoint:
    """Change what is given. Disabling ends what waits; enabling forgets the failures so far."""
    row = _locked(actor, webhook_id)
    before: dict[str, Any] = {"url": row.url, "events": row.events, "enabled": row.disabled_at is None}
    if url is not None and url != row.url:
        _require_sendable(url)
        row.url = url
    if events is not None:
        row.events = _chosen(events)
    if enabled is not None and enabled != before["enabled"]:
        _switch(row, on=enabled)
    after: dict[str, Any] = {"url": row.url, "events": row.events, "enabled": row.disabled_at is None}
    changed = [name for name in after if after[name] != before[name]]
    if changed:
        row.save(update_fields=["url", "events", "disabled_at", "disabled_reason", "failing_since"])
        audit(
            by=actor,
            verb="webhook.changed",
            target=row,
            tenant=actor.tenant,
            before={name: before[name] for name in changed},
            after={name: after[name] for name in changed},
        )
    return row


@transaction.atomic
def webhook_rotate_secret(*, actor: Actor, webhook_id: UUID) -> IssuedSecret:
    """A fresh secret at once; the one before it signs beside it for 24 hours, so receivers can change over."""
    row, secret = _locked(actor, webhook_id), new_secret()
    row.former_secret, row.former_until = row.secret, timezone.now() + FORMER_SECRET_FOR
    row.secret = seal(secret)
    row.save(update_fields=["secret", "former_secret", "former_until"])
    audit(by=actor, verb="webhook.secret_rotated", target=row, tenant=actor.tenant)
    return IssuedSecret(row=row, secret=secret)


@transaction.atomic
def webhook_delete(*, actor: Actor, webhook_id: UUID) -> None:
    """Remove an endpoint with its deliveries."""
    row = _locked(actor, webhook_id)
    audit(by=actor, verb="webhook.deleted", target=row, tenant=actor.tenant, before={"url": row.url})
    row.delete()


@transaction.atomic
def webhook_test(*, actor: Actor, webhook_id: UUID) -> WebhookDelivery:
    """Send an event of type ``test`` to one endpoint, whatever it listens to. 409 if it is disabled."""
    row = _locked(actor, webhook_id)
    _require_enabled(row)
    audit(by=actor, verb="webhook.tested", target=row, tenant=actor.tenant)
    event = event_write(actor.tenant.pk, EventType.TEST, {"webhook_id": str(row.pk)}, [row])
    return WebhookDelivery.objects.select_related("event", "endpoint").get(event=event)


@transaction.atomic
def webhook_redeliver(by: Actor | User, delivery: WebhookDelivery, reason: str = "") -> WebhookDelivery:
    """Send a delivery again, with the same ``webhook-id`` and all its tries. 409 while it is on its way.

    ``by``: somebody of its tenant, or an operator.
    """
    with platform_scope():
        rows = WebhookDelivery.objects.filter(pk=delivery.pk)
        row = rows.select_for_update(no_key=True, of=("self",)).select_related("endpoint", "event", "tenant").get()
        if row.state == DeliveryState.WAITING:
            detail = "It is on its way; it can be sent again once it was delivered or given up."
            raise ApplicationError(code="delivery_waiting", status=409, detail=detail)
        _require_enabled(row.endpoint)
        row.state, row.attempts, row.next_try_at = DeliveryState.WAITING, 0, timezone.now()
        row.error, row.response_status, row.delivered_at = "", None, None
        row.save()
        audit(
            by=by, verb="webhook.redelivered", target=row.endpoint, tenant=row.tenant,
            after={"delivery": str(row.pk)}, reason=reason,
        )  # fmt: skip
        nudge_on_commit(row.pk, tries=0)
    return row


def _locked(actor: Actor, webhook_id: UUID) -> WebhookEndpoint:
    return access_row(endpoint_list(actor.tenant).select_for_update(no_key=True), "webhook", pk=webhook_id)


def _switch(row: WebhookEndpoint, *, on: bool) -> None:
    row.disabled_at = None if on else timezone.now()
    row.disabled_reason = "" if on else _BY_HAND
    row.failing_since = None
    if not on:
        give_up_waiting(row)


def _require_enabled(row: WebhookEndpoint) -> None:
    if row.disabled_at is not None:
        detail = f"The endpoint is disabled ({row.disabled_reason}); enable it first."
        raise ApplicationError(code="webhook_disabled", status=409, detail=detail)


def _require_sendable(url: str) -> None:
    try:
        target_of(url)
    except Forbidden as error:
        raise invalid("/url", "address_forbidden", f"{url[:200]!r}: {error}.") from None


def _chosen(events: list[str]) -> list[str]:
    unknown = sorted(set(events) - set(SUBSCRIBABLE))
    if unknown:
        allowed = ", ".join(SUBSCRIBABLE)
        raise invalid("/events", "unknown_event", f"Unknown event {unknown[0]!r}. Allowed: {allowed}.")
    return sorted(set(events))
