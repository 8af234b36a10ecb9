"""What must hold of one tenant's books, row by row against the oracle: no sum of the platform is trusted."""

from collections import defaultdict
from decimal import Decimal
from itertools import groupby

from tenants.billing.models import (
    Account,
    BillingAccount,
    Hold,
    Invoice,
    InvoiceKind,
    InvoiceState,
    LedgerEntry,
    LineKind,
    RatedUsage,
    UsageEvent,
    UsageRollup,
)
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.billing_oracle import Oracle

ZERO, CENT = Decimal(0), Decimal("0.01")
USAGE = {LineKind.USAGE, LineKind.LATE_USAGE}


def check_books(tenant: Tenant, oracle: Oracle) -> None:
    """Raises AssertionError at the first figure that is not what it must be."""
    with platform_scope():
        _check_usage(tenant, oracle)
        _check_ledger(tenant, oracle)
        _check_invoices(tenant, oracle)


def _check_usage(tenant: Tenant, oracle: Oracle) -> None:
    owed = [line for line in oracle.owed if line.work.tenant_id == tenant.pk]
    events = UsageEvent.objects.filter(tenant=tenant)
    stored = sorted(events.values_list("event_id", "meter", "quantity"))
    assert stored == sorted((line.work.event_id, line.meter, line.quantity) for line in owed)
    rated = RatedUsage.objects.filter(tenant=tenant).select_related("event")
    told = sorted((row.event.event_id, row.event.meter, row.amount, row.period) for row in rated)
    assert told == sorted((line.work.event_id, line.meter, line.amount, line.invoiced_in) for line in owed)
    sums: defaultdict[tuple[object, ...], Decimal] = defaultdict(Decimal)
    for line in owed:
        sums[line.invoiced_in, line.work.occurred_at.date(), line.work.job_id, line.meter, line.work.free_reason] += (
            line.amount
        )
    rollups = UsageRollup.objects.filter(tenant=tenant)
    assert {(row.period, row.day, row.job_id, row.meter, row.reason): row.amount for row in rollups} == sums


def _check_ledger(tenant: Tenant, oracle: Oracle) -> None:
    entries = LedgerEntry.objects.filter(tenant=tenant).order_by("transaction_id")
    for _, sides in groupby(entries, key=lambda entry: entry.transaction_id):
        assert sum((entry.amount for entry in sides), ZERO) == 0
    balances: defaultdict[str, Decimal] = defaultdict(Decimal)
    for entry in entries:
        balances[entry.account] += entry.amount
    account = BillingAccount.objects.filter(tenant=tenant).first() or BillingAccount(credit=ZERO, held=ZERO)
    assert (account.credit, account.held) == (balances[Account.CREDIT], balances[Account.HOLD])
    assert account.credit >= 0
    open_holds = Hold.objects.filter(tenant=tenant, released_at=None)
    assert account.held == sum((hold.funded - hold.captured_funds for hold in open_holds), ZERO)
    taken_back = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.CREDIT_NOTE)
    refunds = sum((note.total for note in taken_back), ZERO)  # negative
    assert balances[Account.REVENUE] == oracle.amount_of(tenant.pk) + refunds


def _check_invoices(tenant: Tenant, oracle: Oracle) -> None:
    final = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE, state=InvoiceState.FINAL)
    months = [invoice.period_start for invoice in final]
    assert len(set(months)) == len(months)
    for invoice in final.prefetch_related("lines"):
        lines = list(invoice.lines.all())
        assert invoice.total == sum((line.amount for line in lines), ZERO) >= 0
        assert all(line.amount % CENT == 0 for line in lines)
        exact = sum((line.exact for line in lines if line.kind in USAGE), ZERO)
        assert exact == oracle.amount_of(tenant.pk, invoiced_in=invoice.period_start)
        assert all(abs(line.amount - line.exact) <= CENT / 2 for line in lines if line.kind in USAGE)
    entries = LedgerEntry.objects.filter(tenant=tenant, account=Account.UNBILLED)
    for month in months:  # what is on a final invoice is not unbilled any more
        assert sum((entry.amount for entry in entries if entry.period == month), ZERO) == 0
