"""One delivery on its way: claimed by compare-and-swap, sent, settled, tried again for a day.

A worker that dies leaves its claim behind; when that has run out the sweep asks for the next try. An event may
thus arrive twice, with the same `webhook-id`.
"""

import json
import logging
from datetime import datetime, timedelta
from uuid import UUID

from cryptography.fernet import InvalidToken
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from standardwebhooks import Webhook

from tenants.audit.services import audit
from tenants.scope import platform_scope
from tenants.webhooks.models import DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookEvent
from tenants.webhooks.nudges import nudge
from tenants.webhooks.sealing import unseal
from tenants.webhooks.sender import Answer, send

logger = logging.getLogger(__name__)

PAUSES = (  # before each further try: the last one is 23 h 35 min after the first
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=8),
    timedelta(hours=8),
)
TRIES_MAX = len(PAUSES) + 1
CLAIM_TTL = timedelta(seconds=30)  # longer than any try takes
DISABLE_AFTER = timedelta(days=5)  # of failures without a single success
SIDE_BY_SIDE = 2  # tries at one endpoint at once: a slow receiver must leave senders for the others
_BUSY_PAUSE = timedelta(seconds=3)
_NUDGE_AGAIN = timedelta(minutes=1)
_SWEEP_LIMIT = 200
_KEEP = timedelta(days=30)


def deliver(delivery_id: UUID, *, tries: int) -> Answer | None:
    """Make try number ``tries`` + 1, unless somebody has made it or it is not wanted any more (None)."""
    delivery = _claim(delivery_id, tries)
    if delivery is None:
        return None
    try:
        headers, body = signed(delivery, timezone.now())
    except InvalidToken:
        logger.error("webhook delivery %s: no key of the ring opens the endpoint's secret", delivery.pk)
        answer = Answer(status=None, error="the signing secret cannot be read; rotate it", duration_ms=0)
    else:
        answer = send(delivery.endpoint.url, headers=headers, body=body)
    _settle(delivery, answer)
    return answer


def deliveries_sweep() -> int:
    """Ask for every try that is due and was not asked for just now; returns how many messages were sent."""
    now, sent = timezone.now(), 0
    with platform_scope():
        due = WebhookDelivery.objects.filter(state=DeliveryState.WAITING, next_try_at__lte=now)
        for pk, tries in due.order_by("next_try_at").values_list("pk", "attempts")[:_SWEEP_LIMIT]:
            # The next sweeps leave it alone for a while: a queue that is behind must not grow by the same messages.
            later = due.filter(pk=pk, attempts=tries).update(next_try_at=now + _NUDGE_AGAIN)
            if later and not nudge(pk, tries=tries):
                due.model.objects.filter(pk=pk, attempts=tries).update(next_try_at=now)
                break
            sent += later
    return sent


def deliveries_prune() -> int:
    """Forget events of more than 30 days ago, with their deliveries; returns how many events."""
    with platform_scope():
        old = WebhookEvent.objects.filter(created_at__lt=timezone.now() - _KEEP)
        count = old.count()
        old.delete()
    return count


def signed(delivery: WebhookDelivery, at: datetime) -> tuple[dict[str, str], bytes]:
    """(headers, body) of a delivery by the Standard Webhooks specification; two signatures during a rotation."""
    event, endpoint = delivery.event, delivery.endpoint
    told = {"type": event.type, "timestamp": event.created_at.isoformat(), "data": event.data}
    body = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
    secrets = [endpoint.secret]
    if endpoint.former_secret and endpoint.former_until is not None and endpoint.former_until > at:
        secrets.append(endpoint.former_secret)
    signatures = [Webhook(unseal(sealed)).sign(msg_id=str(event.pk), timestamp=at, data=body) for sealed in secrets]
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "JoyNexus-Webhooks/1",
        "webhook-id": str(event.pk),
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
    return headers, body.encode()


def _claim(delivery_id: UUID, tries: int) -> WebhookDelivery | None:
    """Take one try: ``attempts`` is the fencing number, so of two messages for the same try one finds it taken."""
    now = timezone.now()
    with platform_scope():
        row = WebhookDelivery.objects.filter(pk=delivery_id, state=DeliveryState.WAITING, attempts=tries)
        delivery = row.select_related("endpoint", "event").first()
        if delivery is None:
            return None
        if delivery.endpoint.disabled_at is not None:  # while the event was being written
            give_up_waiting(delivery.endpoint)
            return None
        if _is_busy(delivery.endpoint, now):
            row.update(next_try_at=now + _BUSY_PAUSE)
            return None
        until = now + CLAIM_TTL
        if row.update(attempts=F("attempts") + 1, claimed_until=until, next_try_at=until) != 1:
            return None
        delivery.attempts = tries + 1
    return delivery


def _is_busy(endpoint: WebhookEndpoint, now: datetime) -> bool:
    under_way = WebhookDelivery.objects.filter(endpoint=endpoint, state=DeliveryState.WAITING, claimed_until__gt=now)
    return under_way.count() >= SIDE_BY_SIDE


@transaction.atomic
def _settle(delivery: WebhookDelivery, answer: Answer) -> None:
    """Write the outcome of a try, if the claim is still this one, and what it means for the endpoint."""
    now = timezone.now()
    outcome = {"response_status": answer.status, "duration_ms": answer.duration_ms, "error": answer.error[:300]}
    with platform_scope():
        row = WebhookDelivery.objects.filter(
            pk=delivery.pk, state=DeliveryState.WAITING, attempts=delivery.attempts, claimed_until__isnull=False
        )
        if row.update(claimed_until=None, **outcome, **_next(delivery.attempts, answer, now)) != 1:
            logger.info("webhook delivery %s: try %d was superseded", delivery.pk, delivery.attempts)
            return
        endpoints = WebhookEndpoint.objects.filter(pk=delivery.endpoint_id)
        if answer.ok:
            endpoints.exclude(failing_since=None).update(failing_since=None)
        else:
            endpoints.filter(failing_since=None, disabled_at=None).update(failing_since=now)
            _disable_if_hopeless(delivery.endpoint_id, now)


def _next(tries: int, answer: Answer, now: datetime) -> dict[str, object]:
    if answer.ok:
        return {"state": DeliveryState.DELIVERED, "delivered_at": now, "next_try_at": None}
    if tries >= TRIES_MAX:
        return {"state": DeliveryState.FAILED, "next_try_at": None}
    return {"next_try_at": now + PAUSES[tries - 1]}


def _disable_if_hopeless(endpoint_id: UUID, now: datetime) -> None:
    hopeless = WebhookEndpoint.objects.filter(pk=endpoint_id, disabled_at=None, failing_since__lte=now - DISABLE_AFTER)
    reason = f"every delivery failed for {DISABLE_AFTER.days} days"
    if hopeless.update(disabled_at=now, disabled_reason=reason) != 1:
        return
    endpoint = WebhookEndpoint.objects.select_related("tenant").get(pk=endpoint_id)
    give_up_waiting(endpoint)
    audit(by=None, verb="webhook.disabled", target=endpoint, tenant=endpoint.tenant, reason=reason)


def give_up_waiting(endpoint: WebhookEndpoint) -> None:
    """What waits for an endpoint that was disabled is not sent any more; it can be sent again by hand."""
    waiting = WebhookDelivery.objects.filter(endpoint=endpoint, state=DeliveryState.WAITING)
    waiting.update(state=DeliveryState.FAILED, next_try_at=None, claimed_until=None, error="the endpoint was disabled")
