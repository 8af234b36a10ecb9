"""Periodic chores of the billing app."""

from uuid import UUID

from celery import shared_task

from tenants.billing.invoices.closing import months_close, tenants_with_open_months

TENANTS_PER_TASK = 20  # a task stays far below its time limit


@shared_task(name="tenants.billing.tasks.invoices_close")
def invoices_close() -> int:
    """Have every tenant's due months closed and the drafts of the others renewed. Returns how many tenants."""
    tenant_ids = [str(tenant_id) for tenant_id in tenants_with_open_months()]
    for start in range(0, len(tenant_ids), TENANTS_PER_TASK):
        invoices_close_some.delay(tenant_ids[start : start + TENANTS_PER_TASK])
    return len(tenant_ids)


@shared_task(name="tenants.billing.tasks.invoices_close_some")
def invoices_close_some(tenant_ids: list[str]) -> int:
    """Close the due months of these tenants. Returns how many months."""
    return months_close([UUID(tenant_id) for tenant_id in tenant_ids])
