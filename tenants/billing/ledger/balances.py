"""What a tenant has, owes and may still spend, in one value."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from django.db.models import Sum
from django.utils import timezone

from tenants.billing.ledger.books import ZERO, account_of
from tenants.billing.ledger.holds import reserved
from tenants.billing.models import Account, BillingMode, Budget, LedgerEntry
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.selectors import spent
from tenants.models import Tenant
from tenants.quotas.limits import limit_of
from tenants.quotas.models import Resource
from tenants.scope import platform_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Money in the tenant's currency, 12 places. The last four are of the calendar month ``month``."""

    mode: BillingMode
    credit: Decimal
    held: Decimal
    unbilled: Decimal  # used and not yet on a final invoice
    due: Decimal  # on final invoices and not yet paid
    month: date
    spent: Decimal
    reserved: Decimal
    limit: Decimal | None
    budget: Decimal | None


def balance_of(tenant: Tenant) -> Balance:
    """A tenant's balance now."""
    account, month = account_of(tenant), month_of(timezone.now())
    limit = limit_of(tenant, Resource.MONEY_PER_MONTH)
    with platform_scope():
        budget = Budget.objects.filter(tenant=tenant, project=None, ended_at=None).first()
    return Balance(
        mode=BillingMode(account.mode),
        credit=account.credit,
        held=account.held,
        unbilled=-account_sum(tenant, Account.UNBILLED),
        due=-account_sum(tenant, Account.RECEIVABLE),
        month=month,
        spent=spent(tenant, month=month),
        reserved=reserved(tenant),
        limit=None if limit is None else Decimal(limit),
        budget=None if budget is None else budget.amount,
    )


def account_sum(tenant: Tenant, account: Account) -> Decimal:
    """The balance of an account that is not cached: the sum of its entries."""
    with platform_scope():
        entries = LedgerEntry.objects.filter(tenant=tenant, account=account)
        return entries.aggregate(total=Sum("amount"))["total"] or ZERO
