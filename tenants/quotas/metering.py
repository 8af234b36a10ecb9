"""Storage on the bill: one usage event per tenant and UTC hour, however often and however late this runs."""

import logging
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import NO_JOB, Meter
from tenants.billing.usage.batches import usage_ingest_batch
from tenants.billing.usage.works import MeteredWork
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.quotas.models import StorageAccount, StorageHour
from tenants.quotas.storage import account_for_update, hour_of
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)

SOURCE = "storage"
_SECONDS_PER_HOUR = 3600
_HOURS_AT_ONCE = 500  # of one tenant in one transaction


def storage_meter() -> int:
    """Meter every hour that is over and was not yet. Returns how many events were told.

    A tenant whose usage cannot be rated keeps its hours for the next time and does not hold up the others.
    """
    with platform_scope():
        tenants = [account.tenant for account in StorageAccount.objects.select_related("tenant").order_by("tenant_id")]
    told = 0
    for tenant in tenants:
        try:
            while count := _meter(tenant):
                told += count
        except ApplicationError as error:
            logger.error("storage of tenant %s is not metered: %s", tenant.pk, error)
    return told


@transaction.atomic
def _meter(tenant: Tenant) -> int:
    """The oldest hours of one tenant. The locked account lets one meter at a time pass; 0 if nothing is left."""
    account = account_for_update(tenant)
    with platform_scope():
        over = StorageHour.objects.filter(tenant=tenant, byte_hours=None, hour__lt=hour_of(timezone.now()))
        hours = list(over.order_by("hour")[:_HOURS_AT_ONCE])
        for row in hours:
            row.byte_hours, account.byte_s = divmod(account.byte_s + row.byte_s, _SECONDS_PER_HOUR)
        account.save(update_fields=["byte_s"])
        StorageHour.objects.bulk_update(hours, ["byte_hours"])
        done = usage_ingest_batch([_work(tenant, row.hour, row.byte_hours) for row in hours], source=SOURCE)
    for refused in done.refused:
        logger.error("storage of tenant %s: hour %s is refused: %s", tenant.pk, refused.event_id, refused.code)
    return len(hours)


def _work(tenant: Tenant, hour: datetime, byte_hours: int | None) -> MeteredWork:
    """It happened when the hour began: that month, that day, that price."""
    line = UsageLine(meter=Meter.STORAGE_BYTE_HOURS.value, quantity=byte_hours or 0)
    return MeteredWork(
        tenant_id=tenant.pk, job_id=NO_JOB, event_id=f"{hour:%Y-%m-%dT%H}", lines=[line], occurred_at=hour
    )
