"""A month's invoice: a draft that follows the usage, then final, once, whatever runs in parallel."""

from datetime import date, datetime
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from tenants.audit.services import audit
from tenants.billing.invoices.lines import MonthBill, month_bill
from tenants.billing.ledger.books import Entry, account_for_update, move
from tenants.billing.models import (
    Account,
    BillingPeriod,
    Invoice,
    InvoiceKind,
    InvoiceLine,
    InvoiceSequence,
    InvoiceState,
    LedgerKind,
)
from tenants.billing.usage.months import closable_at
from tenants.billing.usage.periods import month_after
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant, User
from tenants.scope import platform_scope
from tenants.webhooks.services import webhook_event


@transaction.atomic
def invoice_draft(*, tenant: Tenant, month: date) -> Invoice | None:
    """What a month comes to so far: its draft, worked out anew. The final one if there is one; None without usage."""
    with platform_scope():
        period_for_update(tenant, month)
        final = _final(tenant, month)
        return final or _redrafted(tenant, month, account_for_update(tenant.pk).credit)[0]


@transaction.atomic
def invoice_finalize(
    *, by: Actor | User | None, tenant: Tenant, month: date, now: datetime | None = None
) -> Invoice | None:
    """Close a month: number and freeze its invoice, book what it asks for. Events that come later go to a later one.

    Whoever comes second gets what the first made. None if nothing was used: the month is closed without an invoice.
    After a voided invoice it makes another one of the same usage. Raises ApplicationError before the grace is over.
    """
    now = now or timezone.now()
    if now < closable_at(month):
        raise ApplicationError(
            code="month_open",
            status=409,
            detail=f"{month:%Y-%m} can be closed from {closable_at(month).isoformat()} on: late usage is awaited.",
        )
    with platform_scope():
        period = period_for_update(tenant, month)
        final = _final(tenant, month)
        if final is not None:
            return final
        if period.closed_at is None:
            period.closed_at = now
            period.save(update_fields=["closed_at"])
        invoice, bill = _redrafted(tenant, month, account_for_update(tenant.pk).credit)
        if invoice is None or bill is None:
            return None
        _freeze(invoice, now)
        _book(by, invoice, bill)
    audit(
        by=by,
        verb="invoice.finalized",
        target=invoice,
        tenant=tenant,
        after={"number": invoice.number, "total": f"{invoice.total:f}", "currency": invoice.currency},
    )
    webhook_event(tenant.pk, "invoice.finalized", summary_of(invoice))
    return invoice


def period_for_update(tenant: Tenant, month: date) -> BillingPeriod:
    """A tenant's month, made if nobody knew it and locked against ingest and other closings."""
    if month.day != 1:
        raise ValueError(f"a month is written as its first day; got {month}")
    BillingPeriod.objects.bulk_create([BillingPeriod(tenant=tenant, start=month)], ignore_conflicts=True)
    return BillingPeriod.objects.select_for_update(no_key=True).get(tenant=tenant, start=month)


def number_take(year: int) -> str:
    """The next number of a year. Its row stays locked until the transaction ends, so a failure leaves no gap.

    Take it last: everybody else who numbers an invoice waits for this transaction.
    """
    InvoiceSequence.objects.bulk_create([InvoiceSequence(year=year)], ignore_conflicts=True)
    sequence = InvoiceSequence.objects.select_for_update(no_key=True).get(year=year)
    sequence.last += 1
    sequence.save(update_fields=["last"])
    return f"{year}-{sequence.last:06d}"


def summary_of(invoice: Invoice) -> dict[str, str]:
    """What a webhook tells of an invoice."""
    return {
        "id": str(invoice.pk),
        "number": invoice.number or "",
        "period_start": invoice.period_start.isoformat(),
        "period_end": invoice.period_end.isoformat(),
        "total": f"{invoice.total:f}",
        "currency": invoice.currency,
    }


def _final(tenant: Tenant, month: date) -> Invoice | None:
    return Invoice.objects.filter(
        tenant=tenant, kind=InvoiceKind.INVOICE, state=InvoiceState.FINAL, period_start=month
    ).first()


def _redrafted(tenant: Tenant, month: date, credit: Decimal) -> tuple[Invoice | None, MonthBill | None]:
    """The stored draft of a month with fresh lines; none, and no old one either, if nothing was used."""
    drafts = Invoice.objects.filter(tenant=tenant, state=InvoiceState.DRAFT, period_start=month)
    bill = month_bill(tenant, month, credit)
    if bill is None:
        drafts.delete()
        return None, None
    draft = drafts.first() or Invoice(
        tenant=tenant, period_start=month, period_end=month_after(month), currency=tenant.currency
    )
    draft.total = bill.total
    draft.save()
    draft.lines.all().delete()
    for line in bill.lines:
        line.invoice = draft
    InvoiceLine.objects.bulk_create(bill.lines)
    return draft, bill


def _freeze(invoice: Invoice, now: datetime) -> None:
    invoice.state = InvoiceState.FINAL
    invoice.finalized_at = now
    invoice.paid_at = None if invoice.total else now
    invoice.number = number_take(now.year)
    invoice.save(update_fields=["state", "finalized_at", "paid_at", "number"])


def _book(by: Actor | User | None, invoice: Invoice, bill: MonthBill) -> None:
    """What was used and not yet billed is now on an invoice: unbilled to zero, for this month."""
    entries = [
        Entry(account=Account.UNBILLED, amount=bill.owed, period=invoice.period_start),
        Entry(account=Account.CREDIT, amount=-bill.applied),
        Entry(account=Account.RECEIVABLE, amount=-bill.total),
        Entry(account=Account.ROUNDING, amount=bill.rounding),
    ]
    moved = [entry for entry in entries if entry.amount]
    if moved:
        move(
            tenant_id=invoice.tenant_id,
            kind=LedgerKind.INVOICE,
            reference=str(invoice.pk),
            entries=moved,
            by=by,
            invoice=invoice,
        )
