"""Celery tasks of webhooks. They have a queue of their own: a slow receiver never holds up the platform's work."""

from uuid import UUID

from celery import shared_task

from tenants.webhooks import deliveries
from tenants.webhooks.nudges import DELIVER


@shared_task(name=DELIVER)
def deliver(delivery_id: str, tries: int) -> None:
    """One try. Sent at least once: whoever does not get the claim leaves it alone."""
    deliveries.deliver(UUID(delivery_id), tries=tries)


@shared_task(name="tenants.webhooks.tasks.sweep")
def sweep() -> int:
    """Ask for what is due: retries, and first tries whose message or worker was lost."""
    return deliveries.deliveries_sweep()


@shared_task(name="tenants.webhooks.tasks.prune")
def prune() -> int:
    """Forget old events."""
    return deliveries.deliveries_prune()
