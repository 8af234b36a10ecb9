"""Usage takes its money: out of the job's hold, then out of the credit, else onto the next invoice."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from tenants.billing.ledger.books import ZERO, Entry, accounts_for_update, balance_change, require_balanced, rows_of
from tenants.billing.models import Account, BillingAccount, Hold, LedgerEntry, LedgerKind
from tenants.billing.models import LedgerTransaction as Transaction
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope

_ROWS_PER_STATEMENT = 500
_Side = tuple[Account, UUID | None, date]  # account, job (of a hold), period


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Rated usage of one job. ``period``: first day of the month whose invoice it is on (`RatedUsage.period`)."""

    tenant_id: UUID
    job_id: UUID
    amount: Decimal
    currency: str
    period: date


@dataclass(slots=True, kw_only=True)
class _Capture:
    """One tenant's movement while it is being worked out."""

    account: BillingAccount
    credit: Decimal  # left
    sides: dict[_Side, Decimal] = field(default_factory=lambda: defaultdict(Decimal))

    def take(self, charge: Charge, hold: Hold | None) -> None:
        """Hold, then credit, then unbilled: to revenue."""
        from_hold = ZERO
        if hold is not None:
            from_hold = min(charge.amount, hold.funded - hold.captured_funds)
            hold.captured_funds += from_hold
            hold.captured = min(hold.amount, hold.captured + charge.amount)
        from_credit = min(charge.amount - from_hold, self.credit)
        self.credit -= from_credit
        self.sides[Account.HOLD, charge.job_id, charge.period] -= from_hold
        self.sides[Account.CREDIT, None, charge.period] -= from_credit
        self.sides[Account.UNBILLED, None, charge.period] -= charge.amount - from_hold - from_credit
        self.sides[Account.REVENUE, None, charge.period] += charge.amount

    def entries(self) -> list[Entry]:
        return [
            Entry(account=account, amount=amount, job_id=job_id, period=period)
            for (account, job_id, period), amount in self.sides.items()
            if amount
        ]


@transaction.atomic
def usage_capture(charges: Sequence[Charge], *, reference: str) -> None:
    """Book freshly rated usage of any tenants: one movement per tenant, a fixed number of statements.

    ``reference`` names the batch and is booked once per tenant: a repeat with the same total changes nothing. Raises
    ApplicationError 409 if it is known with another total, ValueError for a negative amount or a foreign currency.
    """
    owed = [charge for charge in charges if charge.amount]
    if any(charge.amount < 0 for charge in owed):
        raise ValueError("usage never costs less than nothing")
    if not owed:
        return
    with platform_scope():
        accounts = accounts_for_update(charge.tenant_id for charge in owed)
        currencies = _currencies(owed)
        fresh = _not_yet_booked(owed, reference)
        holds = _open_holds({charge.job_id for charge in fresh})
        captures: dict[UUID, _Capture] = {}
        for charge in fresh:
            account = accounts[charge.tenant_id]
            capture = captures.setdefault(charge.tenant_id, _Capture(account=account, credit=account.credit))
            capture.take(charge, holds.get(charge.job_id))
        _book(captures, currencies, reference)
        Hold.objects.bulk_update(holds.values(), ["captured", "captured_funds"], batch_size=_ROWS_PER_STATEMENT)


def _currencies(charges: Sequence[Charge]) -> dict[UUID, str]:
    tenants = Tenant.objects.filter(pk__in={charge.tenant_id for charge in charges})
    known = dict(tenants.values_list("pk", "currency"))
    foreign = {charge.currency for charge in charges if charge.currency != known[charge.tenant_id]}
    if foreign:
        raise ValueError(f"usage is rated in the currency of its tenant; got {sorted(foreign)}")
    return known


def _not_yet_booked(charges: Sequence[Charge], reference: str) -> list[Charge]:
    """Charges of tenants for whom this batch is new."""
    totals: dict[UUID, Decimal] = defaultdict(Decimal)
    for charge in charges:
        totals[charge.tenant_id] += charge.amount
    entries = LedgerEntry.objects.filter(
        tenant_id__in=totals,
        transaction__kind=LedgerKind.CAPTURE,
        transaction__reference=reference,
        account=Account.REVENUE,
    )
    booked: dict[UUID, Decimal] = defaultdict(Decimal)
    for tenant_id, amount in entries.values_list("tenant_id", "amount"):
        booked[tenant_id] += amount
    if any(totals[tenant_id] != amount for tenant_id, amount in booked.items()):
        raise ApplicationError(
            code="ledger_conflict", status=409, detail=f"Usage {reference!r} is on the books with another total."
        )
    return [charge for charge in charges if charge.tenant_id not in booked]


def _open_holds(job_ids: set[UUID]) -> dict[UUID, Hold]:
    """By job, locked in the order of their keys."""
    rows = Hold.objects.select_for_update(no_key=True).filter(job_id__in=job_ids, released_at=None).order_by("pk")
    return {hold.job_id: hold for hold in rows}


def _book(captures: dict[UUID, _Capture], currencies: dict[UUID, str], reference: str) -> None:
    transactions, entries, changed = [], [], []
    for tenant_id, capture in captures.items():
        sides = capture.entries()
        require_balanced(sides)
        booked = Transaction(
            tenant_id=tenant_id, kind=LedgerKind.CAPTURE, reference=reference, currency=currencies[tenant_id]
        )
        transactions.append(booked)
        entries += rows_of(booked, sides)
        if balance_change(sides, Account.CREDIT) or balance_change(sides, Account.HOLD):
            capture.account.credit += balance_change(sides, Account.CREDIT)
            capture.account.held += balance_change(sides, Account.HOLD)
            changed.append(capture.account)
    Transaction.objects.bulk_create(transactions, batch_size=_ROWS_PER_STATEMENT)
    LedgerEntry.objects.bulk_create(entries, batch_size=_ROWS_PER_STATEMENT)
    BillingAccount.objects.bulk_update(changed, ["credit", "held"], batch_size=_ROWS_PER_STATEMENT)
