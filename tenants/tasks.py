"""Periodic chores of the tenants app."""

from celery import shared_task

from tenants.idempotency import idempotency_purge
from tenants.scope import platform_scope


@shared_task(name="tenants.tasks.purge_idempotency")
def purge_idempotency() -> int:
    """Forget answers kept for longer than a day."""
    with platform_scope():
        return idempotency_purge()
