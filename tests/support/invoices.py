"""A month of usage and its invoice, for tests."""

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.budgets.services import budget_create
from tenants.billing.invoices.services import invoice_finalize
from tenants.billing.models import Budget, Invoice, InvoiceLine
from tenants.models import Tenant
from tenants.scope import platform_scope, tenant_scope
from tests.support.factories import moment
from tests.support.story import Person
from tests.support.usage import ingest

MAY, JUNE = dt.date(2026, 5, 1), dt.date(2026, 6, 1)
AFTER_MAY, AFTER_JUNE = moment("2026-06-04T00:00:00"), moment("2026-07-04T00:00:00")


def use(tenant: Tenant, samples: int, *, at: str = "2026-05-10T12:00:00", **changes: Any) -> None:
    """Training samples at 0.05 per 1,000: 20 of them are one tenth of a cent."""
    lines = (UsageLine(meter="train.samples", quantity=samples),)
    ingest(tenant, **({"lines": lines, "occurred_at": moment(at)} | changes))


def close_may(tenant: Tenant) -> Invoice:
    invoice = invoice_finalize(by=None, tenant=tenant, month=MAY, now=AFTER_MAY)
    assert invoice is not None
    return invoice


def lines_of(invoice: Invoice | UUID) -> list[InvoiceLine]:
    pk = invoice if isinstance(invoice, UUID) else invoice.pk
    with platform_scope():
        return list(InvoiceLine.objects.filter(invoice_id=pk).order_by("position"))


def shown(invoice: Invoice) -> list[tuple[str, Decimal]]:
    """(description, amount) of every line."""
    return [(line.description, line.amount) for line in lines_of(invoice)]


def make_billing_rows(person: Person) -> tuple[Invoice, Budget]:
    """A final invoice for May and a budget of the tenant."""
    use(person.tenant, 100_000)
    with tenant_scope(person.tenant):
        budget = budget_create(by=person.actor, project=None, amount=Decimal(50), hard=False)
    return close_may(person.tenant), budget
