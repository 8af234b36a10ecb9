"""Reading the ledger for people: movements newest first, page by page, and all of them for a spreadsheet."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from tenants.billing.invoices.reads import PlainNumber
from tenants.billing.models import Account, LedgerEntry, LedgerKind
from tenants.billing.models import LedgerTransaction as Transaction
from tenants.models import Tenant
from tenants.scope import tenant_scope

CSV_COLUMNS = ("created_at", "kind", "reference", "reason", "account", "amount", "currency", "job", "invoice")
_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One transaction as its tenant reads it: what it did to the credit, to what is held, to what is owed."""

    transaction: Transaction
    credit: Decimal
    held: Decimal
    owed: Decimal  # rises with usage, falls with payments and credit
    job_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPage:
    """``older``: for the page after this one; None on the last."""

    movements: tuple[Movement, ...]
    older: UUID | None


def ledger_page(tenant: Tenant, *, kind: LedgerKind | None, before: UUID | None, most: int) -> LedgerPage:
    """Up to ``most`` movements, newest first, older than ``before``; an id that is not the tenant's starts anew."""
    rows = _transactions(tenant, kind)
    known = Transaction.objects.filter(tenant=tenant, pk=before) if before is not None else Transaction.objects.none()
    start = known.values_list("created_at", "pk").first()
    if start is not None:
        rows = rows.filter(Q(created_at__lt=start[0]) | Q(created_at=start[0], pk__lt=start[1]))
    found = list(rows.prefetch_related("entries").select_related("invoice")[: most + 1])
    shown = found[:most]
    return LedgerPage(
        movements=tuple(_movement(row) for row in shown), older=shown[-1].pk if len(found) > most else None
    )


def csv_rows(tenant: Tenant, kind: LedgerKind | None) -> Iterator[tuple[Any, ...]]:
    """One row per entry, newest transaction first, under `CSV_COLUMNS`."""
    with tenant_scope(tenant):  # whoever reads the rows has left the request's
        entries = LedgerEntry.objects.select_related("transaction")
    if kind is not None:
        entries = entries.filter(transaction__kind=kind)
    for entry in entries.order_by("-transaction__created_at", "-transaction_id", "pk").iterator(_AT_ONCE):
        moved = entry.transaction
        yield (
            moved.created_at.isoformat(),
            moved.kind,
            moved.reference,
            moved.reason,
            entry.account,
            PlainNumber(entry.amount),
            moved.currency,
            entry.job_id and str(entry.job_id),
            moved.invoice_id and str(moved.invoice_id),
        )


def _transactions(tenant: Tenant, kind: LedgerKind | None) -> QuerySet[Transaction]:
    rows = Transaction.objects.filter(tenant=tenant).order_by("-created_at", "-pk")
    return rows if kind is None else rows.filter(kind=kind)


def _movement(row: Transaction) -> Movement:
    sums = dict.fromkeys(Account, Decimal(0))
    entries = list(row.entries.all())
    for entry in entries:
        sums[Account(entry.account)] += entry.amount
    return Movement(
        transaction=row,
        credit=sums[Account.CREDIT],
        held=sums[Account.HOLD],
        owed=-(sums[Account.UNBILLED] + sums[Account.RECEIVABLE]),
        job_id=next((entry.job_id for entry in entries if entry.job_id), None),
    )
