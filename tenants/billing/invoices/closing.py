"""Which tenants have months to close or drafts to renew, and doing so, a few tenants at a time."""

import logging
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from uuid import UUID

from celery.exceptions import SoftTimeLimitExceeded
from django.utils import timezone

from tenants.billing.invoices.services import invoice_draft, invoice_finalize
from tenants.billing.models import BillingPeriod
from tenants.billing.usage.months import newest_closable
from tenants.billing.usage.periods import month_after
from tenants.models import Tenant
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)


def tenants_with_open_months(now: datetime | None = None) -> list[UUID]:
    """Every tenant with something to do: a month that is not closed, known or not, since the tenant is there."""
    newest = newest_closable(now or timezone.now())
    ended = datetime.combine(month_after(newest), time.min, UTC)
    with platform_scope():
        closed = BillingPeriod.objects.filter(start=newest).exclude(closed_at=None).values("tenant_id")
        unclosed = BillingPeriod.objects.filter(closed_at=None).values("tenant_id")
        waiting = Tenant.objects.filter(created_at__lt=ended).exclude(pk__in=closed)
        return sorted(
            {*waiting.values_list("pk", flat=True), *unclosed.values_list("tenant_id", flat=True).distinct()}
        )


def months_close(tenant_ids: Sequence[UUID], *, now: datetime | None = None) -> int:
    """Close every month of these tenants whose grace is over, and renew the drafts of the others.

    Each month is a transaction of its own, and whoever else does the same at the same time changes nothing. A tenant
    whose month cannot be closed is logged and does not keep the others from theirs. Returns how many were closed.
    """
    now = now or timezone.now()
    closed = 0
    for tenant in Tenant.objects.filter(pk__in=tenant_ids).order_by("pk"):
        for month in _open_months(tenant, now):
            try:
                closed += _close_or_draft(tenant, month, now)
            except SoftTimeLimitExceeded:  # the worker's, about all of them: the next hour does the rest
                raise
            except Exception:
                logger.exception("%s of tenant %s cannot be closed", f"{month:%Y-%m}", tenant.pk)
    return closed


def _open_months(tenant: Tenant, now: datetime) -> list[date]:
    newest = newest_closable(now)
    with platform_scope():
        known = dict(BillingPeriod.objects.filter(tenant=tenant).values_list("start", "closed_at"))
    months = {start for start, closed_at in known.items() if closed_at is None}
    if newest not in known and tenant.created_at.date() < month_after(newest):
        months.add(newest)
    return sorted(months)


def _close_or_draft(tenant: Tenant, month: date, now: datetime) -> bool:
    if month > newest_closable(now):
        invoice_draft(tenant=tenant, month=month)
        return False
    invoice_finalize(by=None, tenant=tenant, month=month, now=now)
    return True
