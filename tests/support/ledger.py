"""Money of a tenant in tests: credit, modes, and what an account's entries sum to."""

from decimal import Decimal
from uuid import uuid4

from tenants.billing.ledger.books import Entry, move
from tenants.billing.models import Account, BillingAccount, BillingMode, LedgerEntry, LedgerKind
from tenants.models import Tenant
from tenants.scope import platform_scope


def give_credit(tenant: Tenant, amount: str) -> None:
    move(
        tenant_id=tenant.pk,
        kind=LedgerKind.GRANT,
        reference=str(uuid4()),
        entries=(
            Entry(account=Account.PROMO, amount=-Decimal(amount)),
            Entry(account=Account.CREDIT, amount=Decimal(amount)),
        ),
    )


def set_mode(tenant: Tenant, mode: BillingMode) -> None:
    with platform_scope():
        BillingAccount.objects.update_or_create(tenant=tenant, defaults={"mode": mode})


def balance(tenant: Tenant, account: Account) -> Decimal:
    """The sum of an account's entries, added up here."""
    with platform_scope():
        entries = LedgerEntry.objects.filter(tenant=tenant, account=account)
        return sum(entries.values_list("amount", flat=True), Decimal(0))
