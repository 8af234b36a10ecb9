"""Invoices against the usage they bill and the ledger they are booked in. All checks need the platform's scope."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Sum

from tenants.billing.currencies import rounded
from tenants.billing.invoices.lines import rollups_by_line
from tenants.billing.ledger.books import ZERO
from tenants.billing.models import (
    Account,
    BillingPeriod,
    Invoice,
    InvoiceKind,
    InvoiceSequence,
    InvoiceState,
    LedgerEntry,
    LedgerKind,
    LineKind,
    UsageRollup,
)
from tenants.billing.reconcile.comparison import Comparison

_OF_USAGE = (LineKind.USAGE, LineKind.LATE_USAGE)


def lines_are_the_usage() -> Comparison:
    """The lines of every final invoice are the running sums of its month: units billed and free, exact money."""
    books = Comparison()
    for invoice in _invoices(InvoiceState.FINAL):
        expected = {
            (row["month"], row["project_id"], row["meter"]): (int(row["billed"]), int(row["free"]), row["exact"])
            for row in rollups_by_line(invoice.tenant_id, invoice.period_start)
        }
        found = {
            (line.month, line.project_id, line.meter): (line.quantity, line.free_quantity, line.exact)
            for line in invoice.lines.all()
            if line.kind in _OF_USAGE
        }
        books.equal_by_key(invoice.tenant_id, expected, found, lambda key, own=invoice: _line_name(own, key))  # type: ignore[misc]
    return books


def totals_are_the_lines() -> Comparison:
    """Each line is its exact money rounded once, and the total of an invoice is the sum of its lines.

    A credit line may be less than its rounding where it paid for everything: `invoices.lines.month_bill`.
    """
    books = Comparison()
    for invoice in Invoice.objects.prefetch_related("lines").order_by("pk").iterator(chunk_size=500):
        lines = list(invoice.lines.all())
        for line in lines:
            if line.kind != LineKind.CREDIT:
                subject = f"line {line.position} of invoice {invoice}"
                books.equal(invoice.tenant_id, subject, rounded(line.exact, invoice.currency), line.amount)
        total = sum((line.amount for line in lines), ZERO)
        books.equal(invoice.tenant_id, f"total of invoice {invoice}", total, invoice.total)
    return books


def closed_months_are_billed() -> Comparison:
    """A closed month with usage has an invoice, final or void. One with a final invoice has nothing unbilled."""
    books = Comparison()
    used = set(UsageRollup.objects.values_list("tenant_id", "period").distinct())
    billed = set(_months(InvoiceState.FINAL, InvoiceState.VOID))
    closed = set(BillingPeriod.objects.exclude(closed_at=None).values_list("tenant_id", "start"))
    for tenant_id, month in sorted(closed & used):
        books.equal(tenant_id, f"invoices of {month:%Y-%m}", True, (tenant_id, month) in billed)
    final = set(_months(InvoiceState.FINAL))
    unbilled = LedgerEntry.objects.filter(account=Account.UNBILLED).values_list("tenant_id", "period")
    left = {(tenant, month): total for tenant, month, total in unbilled.annotate(Sum("amount")).order_by()}
    for tenant_id, month in sorted(final):
        books.equal(tenant_id, f"{month:%Y-%m} is closed", True, (tenant_id, month) in closed)
        books.equal(tenant_id, f"unbilled of {month:%Y-%m}", ZERO, left.get((tenant_id, month), ZERO))
    return books


def invoices_are_booked() -> Comparison:
    """The ledger asks for the total of every final invoice and for nothing of a void one; rounding is accounted for.

    An invoice is settled, with the day, exactly if nothing of it is left to pay.
    """
    books = Comparison()
    asked = _booked(Account.RECEIVABLE, LedgerKind.INVOICE, LedgerKind.VOID)
    rounding = _booked(Account.ROUNDING, LedgerKind.INVOICE, LedgerKind.VOID)
    left = _booked(Account.RECEIVABLE, *LedgerKind)
    for invoice in _invoices(InvoiceState.FINAL, InvoiceState.VOID):
        final = invoice.state == InvoiceState.FINAL
        exact = sum((line.exact for line in invoice.lines.all()), ZERO)
        of = (invoice.tenant_id, f"invoice {invoice}")
        books.equal(of[0], f"{of[1]}: asked for", invoice.total if final else ZERO, -asked.get(invoice.pk, ZERO))
        gained = invoice.total - exact if final else ZERO
        books.equal(of[0], f"{of[1]}: rounding", gained, rounding.get(invoice.pk, ZERO))
        if final:
            settled = not left.get(invoice.pk, ZERO)
            books.equal(of[0], f"{of[1]}: settled", settled, invoice.paid_at is not None)
    return books


def corrections_fit_their_invoice() -> Comparison:
    """Credit notes take back what the ledger says, and never more than their invoice."""
    books = Comparison()
    returned = _booked(Account.REVENUE, LedgerKind.CREDIT_NOTE)
    notes = Invoice.objects.filter(kind=InvoiceKind.CREDIT_NOTE).values_list("tenant_id", "corrects_id")
    for tenant_id, invoice_id, total in notes.annotate(Sum("total")).order_by("corrects_id"):
        invoice = Invoice.objects.get(pk=invoice_id)
        books.equal(tenant_id, f"credit notes of invoice {invoice}", total, returned.get(invoice_id, ZERO))
        if invoice.total + total < 0:
            books.wrong(tenant_id, f"credit notes of invoice {invoice}", f"at most {invoice.total:f}", -total)
    return books


def numbers_have_no_gap() -> Comparison:
    """The numbers of a year are 1, 2, 3 … up to the last one given out."""
    books = Comparison()
    used: dict[int, list[int]] = {}
    for number in Invoice.objects.exclude(number=None).values_list("number", flat=True):
        of_year, _, place = str(number).partition("-")
        used.setdefault(int(of_year), []).append(int(place))
    last = dict(InvoiceSequence.objects.values_list("year", "last"))
    for year in sorted({*used, *last}):
        missing = sorted({*range(1, last.get(year, 0) + 1)} ^ set(used.get(year, ())))
        books.equal(None, f"numbers of {year} that are missing or were never given out", [], missing[:5])
    return books


def _invoices(*states: InvoiceState) -> Iterator[Invoice]:
    rows = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state__in=states).prefetch_related("lines")
    return rows.order_by("pk").iterator(chunk_size=500)


def _months(*states: InvoiceState) -> Iterator[tuple[UUID, date]]:
    rows = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state__in=states)
    return rows.values_list("tenant_id", "period_start").iterator()


def _booked(account: Account, *kinds: LedgerKind) -> dict[UUID, Decimal]:
    """Sum of an account's entries by invoice."""
    entries: Any = LedgerEntry.objects.filter(account=account, transaction__kind__in=kinds)
    by_invoice = entries.exclude(transaction__invoice=None).values_list("transaction__invoice_id")
    return dict(by_invoice.annotate(Sum("amount")).order_by())


def _line_name(invoice: Invoice, key: tuple[Any, ...]) -> str:
    month, project_id, meter = key
    return f"invoice {invoice}: {meter} of {month:%Y-%m}" + (f", project {project_id}" if project_id else "")
