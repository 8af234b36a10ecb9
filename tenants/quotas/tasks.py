"""Periodic work of the quotas app."""

from celery import shared_task

from tenants.quotas.metering import storage_meter


@shared_task(name="tenants.quotas.tasks.meter_storage", soft_time_limit=1700, time_limit=1800)
def meter_storage() -> int:
    """Put every hour of storage that is over on the bill."""
    return storage_meter()
