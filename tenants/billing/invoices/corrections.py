"""What is final is never changed: it is voided as a whole, or taken back in part by a credit note."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from tenants.audit.services import audit
from tenants.billing.currencies import is_payable
from tenants.billing.invoices.services import number_take, period_for_update
from tenants.billing.ledger.books import ZERO, Entry, account_for_update, move, outstanding
from tenants.billing.models import Account, Invoice, InvoiceKind, InvoiceLine, InvoiceState, LedgerKind, LineKind
from tenants.billing.models import LedgerTransaction as Transaction
from tenants.errors import ApplicationError, invalid
from tenants.identity import Actor
from tenants.models import User
from tenants.scope import platform_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """One line of a credit note. ``amount`` is what is taken back: positive, whole minor units."""

    description: str
    amount: Decimal


@transaction.atomic
def invoice_void(*, by: Actor | User, invoice: Invoice, reason: str) -> Invoice:
    """Cancel a final invoice as a whole; its number stays used, its usage is unbilled again.

    Finalizing its month makes a new invoice. Raises ApplicationError 409 if it is a draft or credit note, or if money
    or a credit note went on it already.
    """
    _require_reason(reason)
    with platform_scope():
        locked = _locked(invoice)
        moved_on = Transaction.objects.filter(invoice=locked).exclude(kind=LedgerKind.INVOICE).exists()
        if locked.kind != InvoiceKind.INVOICE or locked.state != InvoiceState.FINAL or moved_on:
            raise _conflict("Only a final invoice without payments and credit notes can be voided.")
        booked = Transaction.objects.filter(invoice=locked, kind=LedgerKind.INVOICE).first()
        locked.state, locked.voided_at, locked.reason = InvoiceState.VOID, timezone.now(), reason.strip()
        locked.save(update_fields=["state", "voided_at", "reason"])
        if booked is not None:
            reverse = [
                Entry(account=Account(entry.account), amount=-entry.amount, period=entry.period)
                for entry in booked.entries.all()
            ]
            move(
                tenant_id=locked.tenant_id,
                kind=LedgerKind.VOID,
                reference=str(locked.pk),
                entries=reverse,
                by=by,
                reason=locked.reason,
                invoice=locked,
            )
    audit(by=by, verb="invoice.voided", target=locked, tenant=locked.tenant, reason=locked.reason)
    return locked


@transaction.atomic
def credit_note_create(
    *, by: Actor | User, invoice: Invoice, reason: str, lines: Sequence[Correction] | None = None
) -> Invoice:
    """Take back part of a final invoice, or all that is left of it if ``lines`` is None.

    What it still asks for becomes less; what was paid already comes back as credit. Raises ApplicationError for more
    than is left of the invoice.
    """
    _require_reason(reason)
    with platform_scope():
        locked = _locked(invoice)
        if locked.kind != InvoiceKind.INVOICE or locked.state != InvoiceState.FINAL:
            raise _conflict("Only a final invoice can be corrected.")
        left = left_of(locked)
        if lines is None:
            lines = [Correction(description=f"All that is left of invoice {locked.number}", amount=left)]
        total = _require_lines(lines, left, locked.currency)
        note = _note(locked, total, lines, reason.strip())
        _book(by, locked, note, total)
    audit(
        by=by,
        verb="credit_note.created",
        target=note,
        tenant=locked.tenant,
        after={"corrects": locked.number, "amount": f"{total:f}", "currency": locked.currency},
        reason=note.reason,
    )
    return note


def left_of(invoice: Invoice) -> Decimal:
    """What of an invoice was not taken back by credit notes. Needs the platform's scope."""
    taken: Decimal = invoice.corrections.aggregate(total=Sum("total"))["total"] or ZERO
    return invoice.total + taken


def _locked(invoice: Invoice) -> Invoice:
    """The invoice as it is now, with its month and its tenant's account locked."""
    period_for_update(invoice.tenant, invoice.period_start)
    account_for_update(invoice.tenant_id)
    return Invoice.objects.select_for_update(no_key=True, of=("self",)).select_related("tenant").get(pk=invoice.pk)


def _require_lines(lines: Sequence[Correction], left: Decimal, currency: str) -> Decimal:
    for index, line in enumerate(lines):
        if line.amount <= 0 or not is_payable(line.amount, currency):
            allowed = f"more than 0 and whole minor units of {currency}"
            raise invalid(f"/lines/{index}/amount", "amount_invalid", f"Allowed is {allowed}; got {line.amount}.")
    total = sum((line.amount for line in lines), ZERO)
    if not lines or total > left:
        raise invalid("/lines", "more_than_left", f"At most {left:f} is left of the invoice; got {total:f}.")
    return total


def _note(invoice: Invoice, total: Decimal, lines: Sequence[Correction], reason: str) -> Invoice:
    now = timezone.now()
    note = Invoice.objects.create(
        tenant=invoice.tenant,
        kind=InvoiceKind.CREDIT_NOTE,
        state=InvoiceState.FINAL,
        period_start=invoice.period_start,
        period_end=invoice.period_end,
        currency=invoice.currency,
        total=-total,
        corrects=invoice,
        reason=reason,
        finalized_at=now,
        paid_at=now,
        number=number_take(now.year),
    )
    InvoiceLine.objects.bulk_create(
        InvoiceLine(
            tenant=invoice.tenant,
            invoice=note,
            position=position,
            kind=LineKind.CORRECTION,
            description=line.description,
            exact=-line.amount,
            amount=-line.amount,
        )
        for position, line in enumerate(lines, start=1)
    )
    return note


def _book(by: Actor | User, invoice: Invoice, note: Invoice, total: Decimal) -> None:
    owed = outstanding(invoice)
    from_owed = min(total, owed)
    entries = [
        Entry(account=Account.REVENUE, amount=-total),
        Entry(account=Account.RECEIVABLE, amount=from_owed),
        Entry(account=Account.CREDIT, amount=total - from_owed),
    ]
    move(
        tenant_id=invoice.tenant_id,
        kind=LedgerKind.CREDIT_NOTE,
        reference=str(note.pk),
        entries=[entry for entry in entries if entry.amount],
        by=by,
        reason=note.reason,
        invoice=invoice,
    )
    if from_owed == owed and invoice.paid_at is None:  # nothing is left to pay
        invoice.paid_at = note.finalized_at
        invoice.save(update_fields=["paid_at"])


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise invalid("/reason", "required", "It needs a reason, which the tenant can read.")


def _conflict(detail: str) -> ApplicationError:
    return ApplicationError(code="invoice_not_correctable", status=409, detail=detail)
