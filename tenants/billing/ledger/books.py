"""The books: movements of money that sum to zero, each made once, with the balances they leave behind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import Sum

from tenants.billing.models import Account, BillingAccount, Invoice, LedgerEntry, LedgerKind
from tenants.billing.models import LedgerTransaction as Transaction
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant, User
from tenants.scope import platform_scope

ZERO = Decimal(0)
BALANCE_MAX = Decimal(9_000_000)  # a column of 64 bits holds 9.2 million with 12 places


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One account's side of a movement. ``amount`` is signed: what comes to the account, or leaves it."""

    account: Account
    amount: Decimal
    job_id: UUID | None = None
    period: date | None = None


def account_for_update(tenant_id: UUID) -> BillingAccount:
    """A tenant's account, made if there is none and locked until the transaction ends."""
    return accounts_for_update([tenant_id])[tenant_id]


def accounts_for_update(tenant_ids: Iterable[UUID]) -> dict[UUID, BillingAccount]:
    """Accounts of several tenants, locked in the order of their tenants' ids."""
    wanted = sorted(set(tenant_ids))
    with platform_scope():
        rows = BillingAccount.objects.filter(tenant_id__in=wanted).order_by("tenant_id")
        found = {row.tenant_id: row for row in rows.select_for_update(no_key=True)}
        if len(found) < len(wanted):
            missing = [BillingAccount(tenant_id=tenant_id) for tenant_id in wanted if tenant_id not in found]
            BillingAccount.objects.bulk_create(missing, ignore_conflicts=True)
            found = {row.tenant_id: row for row in rows.select_for_update(no_key=True)}
    return found


def account_of(tenant: Tenant) -> BillingAccount:
    """A tenant's account as it is now, without a lock; an unsaved, empty one if no money ever moved."""
    with platform_scope():
        return BillingAccount.objects.filter(tenant=tenant).first() or BillingAccount(
            tenant=tenant, credit=ZERO, held=ZERO
        )


@transaction.atomic
def move(
    *,
    tenant_id: UUID,
    kind: LedgerKind,
    reference: str,
    entries: Sequence[Entry],
    by: Actor | User | None = None,
    reason: str = "",
    invoice: Invoice | None = None,
) -> Transaction:
    """Book one movement and its effect on the balances.

    (tenant, kind, reference) is booked once: a repeat changes nothing and returns the first. Raises ValueError for
    entries that do not sum to zero, ApplicationError 402 if credit or holds would be overdrawn, and 409 if the
    reference is known with other entries.
    """
    require_balanced(entries)
    account = account_for_update(tenant_id)
    with platform_scope():
        known = Transaction.objects.filter(tenant_id=tenant_id, kind=kind, reference=reference).first()
        if known is not None:
            _require_same(known, entries)
            return known
        booked = Transaction.objects.create(
            tenant_id=tenant_id,
            kind=kind,
            reference=reference,
            currency=Tenant.objects.values_list("currency", flat=True).get(pk=tenant_id),
            reason=reason,
            invoice=invoice,
            created_by=user_of(by),
        )
        LedgerEntry.objects.bulk_create(rows_of(booked, entries))
        _apply(account, entries)
    return booked


def require_balanced(entries: Sequence[Entry]) -> None:
    """Raises ValueError unless the entries sum to zero and each of them moves something."""
    total = sum((entry.amount for entry in entries), ZERO)
    if total or not entries or not all(entry.amount for entry in entries):
        raise ValueError(f"entries of a movement must be non-zero and sum to 0; got {total} over {list(entries)}")


def rows_of(booked: Transaction, entries: Sequence[Entry]) -> list[LedgerEntry]:
    """The rows of a movement's entries, not yet stored."""
    return [
        LedgerEntry(
            tenant_id=booked.tenant_id,
            transaction=booked,
            account=entry.account,
            amount=entry.amount,
            job_id=entry.job_id,
            period=entry.period,
        )
        for entry in entries
    ]


def balance_change(entries: Sequence[Entry], account: Account) -> Decimal:
    """What the entries bring to an account, or take from it."""
    return sum((entry.amount for entry in entries if entry.account == account), ZERO)


def user_of(by: Actor | User | None) -> User | None:
    """The person behind an act, if there is one."""
    return by.user if isinstance(by, Actor) else by


def outstanding(invoice: Invoice) -> Decimal:
    """What a final invoice still asks for: its total less payments and corrections."""
    with platform_scope():
        entries = LedgerEntry.objects.filter(transaction__invoice=invoice, account=Account.RECEIVABLE)
        return -(entries.aggregate(total=Sum("amount"))["total"] or ZERO)


def _apply(account: BillingAccount, entries: Sequence[Entry]) -> None:
    account.credit += balance_change(entries, Account.CREDIT)
    account.held += balance_change(entries, Account.HOLD)
    if account.credit < 0 or account.held < 0:
        raise ApplicationError(
            code="insufficient_credit",
            status=402,
            detail=f"The credit does not suffice: {-min(account.credit, account.held):f} is missing.",
        )
    if account.credit > BALANCE_MAX:
        raise ApplicationError(
            code="balance_too_large", status=409, detail=f"A credit of more than {BALANCE_MAX} cannot be kept."
        )
    account.save(update_fields=["credit", "held"])


def _require_same(known: Transaction, entries: Sequence[Entry]) -> None:
    told = sorted((entry.account, entry.amount) for entry in known.entries.all())
    if told != sorted((str(entry.account), entry.amount) for entry in entries):
        raise ApplicationError(
            code="ledger_conflict",
            status=409,
            detail=f"{known.kind} {known.reference!r} is on the books with other amounts.",
        )
