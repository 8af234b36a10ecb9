"""The double-entry books. All checks need the platform's scope."""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet, Sum

from tenants.billing.ledger.books import ZERO
from tenants.billing.models import Account, BillingAccount, Hold, LedgerEntry, LedgerKind, UsageRollup
from tenants.billing.models import LedgerTransaction as Transaction
from tenants.billing.reconcile.comparison import Comparison


def movements_sum_to_zero() -> Comparison:
    """Every movement has entries, all of its own tenant, that sum to zero."""
    books = Comparison(compared=Transaction.objects.count())
    unbalanced = LedgerEntry.objects.values("transaction_id").annotate(total=Sum("amount")).exclude(total=0)
    totals = {row["transaction_id"]: row["total"] for row in unbalanced.order_by()}
    wrong = Transaction.objects.filter(Q(pk__in=totals) | Q(entries=None))
    for movement in wrong.order_by("pk"):
        found = totals.get(movement.pk, "no entries")
        books.wrong(movement.tenant_id, f"{movement.kind} {movement.reference}", 0, found)
    foreign = LedgerEntry.objects.exclude(tenant_id=F("transaction__tenant_id")).select_related("transaction")
    for entry in foreign:
        subject = f"entry {entry.pk} of {entry.transaction.kind} {entry.transaction.reference}"
        books.wrong(entry.transaction.tenant_id, subject, entry.transaction.tenant_id, entry.tenant_id)
    return books


def balances_are_the_entries() -> Comparison:
    """The cached balances are the sums of their accounts, and no tenant with entries is without them."""
    books = Comparison()
    credit, held = (_sums(Account.CREDIT), _sums(Account.HOLD))
    cached = {row.tenant_id: row for row in BillingAccount.objects.all()}
    for tenant_id in sorted({*cached, *credit, *held}):
        account = cached.get(tenant_id)
        books.equal(tenant_id, "credit", credit.get(tenant_id, ZERO), account.credit if account else ZERO)
        books.equal(tenant_id, "held", held.get(tenant_id, ZERO), account.held if account else ZERO)
    return books


def usage_is_booked() -> Comparison:
    """What usage costs, by tenant and invoice month, is what the ledger took for it."""
    books = Comparison()
    rated = UsageRollup.objects.values_list("tenant_id", "period").annotate(Sum("amount"))
    captured = LedgerEntry.objects.filter(transaction__kind=LedgerKind.CAPTURE, account=Account.REVENUE)
    booked = captured.values_list("tenant_id", "period").annotate(Sum("amount"))
    expected, found = _by_month(rated.order_by()), _by_month(booked.order_by())
    for tenant_id, month in sorted({*expected, *found}, key=str):
        key = (tenant_id, month)
        books.equal(tenant_id, f"usage on the invoice of {month}", expected.get(key, ZERO), found.get(key, ZERO))
    return books


def holds_are_booked() -> Comparison:
    """The money of every job's hold is on account "hold"; what was released is not."""
    books = Comparison()
    expected: dict[tuple[UUID, UUID | None], Decimal] = {}
    for hold in Hold.objects.filter(released_at=None, funded__gt=0):
        expected[hold.tenant_id, hold.job_id] = hold.funded - hold.captured_funds
    entries = LedgerEntry.objects.filter(account=Account.HOLD)
    sums = entries.values_list("tenant_id", "job_id").annotate(total=Sum("amount")).exclude(total=0).order_by()
    found = {(tenant_id, job_id): total for tenant_id, job_id, total in sums}
    for tenant_id, job_id in sorted({*expected, *found}, key=str):
        key = (tenant_id, job_id)
        books.equal(tenant_id, f"hold of job {job_id}", expected.get(key, ZERO), found.get(key, ZERO))
    return books


def _sums(account: Account) -> dict[UUID, Decimal]:
    entries: QuerySet[Any, Any] = LedgerEntry.objects.filter(account=account).values_list("tenant_id")
    return dict(entries.annotate(Sum("amount")).order_by())


def _by_month(rows: Iterable[tuple[UUID, date | None, Decimal]]) -> dict[tuple[UUID, date | None], Decimal]:
    return {(tenant_id, month): total for tenant_id, month, total in rows if total}
