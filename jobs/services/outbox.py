"""Hand-overs to Celery: written in the transaction of their cause, sent after it, swept if that was lost."""

import logging
from datetime import timedelta

from celery import current_app
from django.db import transaction
from django.utils import timezone

from jobs.models import OutboxMessage

logger = logging.getLogger(__name__)

DISPATCH_JOB, DISPATCH_TENANT = "dispatch_job", "dispatch_tenant"
CANCEL_JOB, IMPORT_DATASET, DELETE_ARTIFACT = "cancel_job", "import_dataset", "delete_artifact"
RECONCILE_BOOKS = "reconcile_books"
TOPICS = (DISPATCH_JOB, DISPATCH_TENANT, CANCEL_JOB, IMPORT_DATASET, DELETE_ARTIFACT, RECONCILE_BOOKS)
TASK_OF_TOPIC = {topic: f"jobs.tasks.{topic}" for topic in TOPICS}
_KEEP_SENT = timedelta(days=7)


def outbox_add(*, topic: str, key: str) -> OutboxMessage:
    """Write a message and, once the surrounding transaction has committed, try to send it.

    A broker that is down never fails the caller: the row stays unsent and the sweep sends it.
    """
    if topic not in TASK_OF_TOPIC:
        raise ValueError(f"outbox topic {topic!r}; allowed: {sorted(TASK_OF_TOPIC)}")
    message = OutboxMessage.objects.create(topic=topic, key=key)
    transaction.on_commit(lambda: outbox_send(message), robust=True)
    return message


def outbox_send(message: OutboxMessage) -> bool:
    """Publish one message and mark it sent. Twice is harmless: receivers claim by compare-and-swap."""
    try:
        current_app.send_task(TASK_OF_TOPIC[message.topic], args=[message.key], retry=False)
    except Exception as error:  # every transport has its own exceptions; the row remains and is swept
        logger.warning("outbox message %s (%s) not sent: %s", message.pk, message.topic, error)
        return False
    OutboxMessage.objects.filter(pk=message.pk, sent_at=None).update(sent_at=timezone.now())
    return True


def outbox_drain(*, older_than: timedelta = timedelta(seconds=2), limit: int = 100) -> int:
    """Send what was left unsent, oldest first; stop at the first failure (the broker is down for all of them)."""
    waiting = OutboxMessage.objects.filter(sent_at=None, created_at__lte=timezone.now() - older_than)
    sent = 0
    for message in waiting.order_by("created_at")[:limit]:
        if not outbox_send(message):
            break
        sent += 1
    return sent


def outbox_prune() -> int:
    """Forget what was sent a week ago."""
    old = OutboxMessage.objects.filter(sent_at__lt=timezone.now() - _KEEP_SENT)
    return old.delete()[0] if old.exists() else 0  # most sweeps find none and need no write lock
