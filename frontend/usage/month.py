"""One month in numbers: what it came to, against what, and what it will come to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from frontend.usage.projection import SPANS, Projection, projected
from tenants.billing.budgets.reads import BudgetState, budget_list, budget_states
from tenants.billing.ledger.balances import Balance, balance_of
from tenants.billing.usage.periods import month_after, month_of
from tenants.billing.usage.ranking import first_day
from tenants.billing.usage.selectors import UsageFilter, UsageTotal, tenant_total, usage_totals
from tenants.models import Tenant
from tenants.scope import tenant_scope

MONTHS = 36  # of the choice of months


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """Money in the tenant's currency, 12 places. ``totals``: by UTC day and meter, of the month only."""

    start: date
    is_now: bool
    spent: Decimal
    before: Decimal  # the month before, up to the same day of the month if this one is not over
    totals: tuple[UsageTotal, ...]
    budget: BudgetState | None  # of the tenant as a whole
    balance: Balance
    projection: Projection | None
    first: date | None  # day of usage ever

    @property
    def last(self) -> date:
        return month_after(self.start) - timedelta(days=1)

    @property
    def over_budget(self) -> bool:
        """Whether the projection goes beyond the budget."""
        return bool(self.budget and self.projection and self.projection.high > self.budget.budget.amount)


def month_read(tenant: Tenant, start: date, now: datetime) -> Month:
    """Everything about a month but its table. A fixed number of queries."""
    is_now = month_of(now) == start
    since = min(start, now.astimezone(UTC).date() - timedelta(days=max(SPANS))) if is_now else start
    totals = usage_totals(tenant, group_by="day", wanted=UsageFilter(since=since, until=month_after(start)))
    own = tuple(total for total in totals if isinstance(total.group, date) and total.group >= start)
    with tenant_scope(tenant):
        whole = list(budget_list(tenant).filter(project=None))
        states = budget_states(whole, start)
    first = first_day(tenant)
    return Month(
        start=start,
        is_now=is_now,
        spent=_sum(own),
        before=_before(tenant, start, now if is_now else None),
        totals=own,
        budget=states[0] if states else None,
        balance=balance_of(tenant),
        projection=projected(_by_day(totals), now, since=first) if is_now else None,
        first=first,
    )


def months_of(first: date | None, this_month: date) -> Iterator[date]:
    """Months with usage or between two such, newest first, at most three years."""
    oldest = min(first or this_month, this_month).replace(day=1)
    month = this_month
    for _ in range(MONTHS):
        yield month
        if month <= oldest:
            return
        month = (month - timedelta(days=1)).replace(day=1)


def _before(tenant: Tenant, start: date, now: datetime | None) -> Decimal:
    """The month before: all of it, or as far as this one has come, today included."""
    until = start
    previous = (start - timedelta(days=1)).replace(day=1)
    if now is not None:
        until = min(start, previous + timedelta(days=now.astimezone(UTC).day))
    return tenant_total(tenant, UsageFilter(since=previous, until=until)).amount


def _by_day(totals: Sequence[UsageTotal]) -> dict[date, Decimal]:
    money: dict[date, Decimal] = {}
    for total in totals:
        if isinstance(total.group, date):
            money[total.group] = money.get(total.group, Decimal(0)) + total.line.amount
    return money


def _sum(totals: Sequence[UsageTotal]) -> Decimal:
    return sum((total.line.amount for total in totals), Decimal(0))
