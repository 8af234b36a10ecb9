"""Calendar months (UTC) of tenants: who locks them, and on which month's invoice usage goes."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

from tenants.billing.models import BillingPeriod

TenantMonth = tuple[UUID, date]  # tenant and the first day of a month


def month_of(moment: datetime) -> date:
    """First day of the UTC month in which something happened."""
    return moment.astimezone(UTC).date().replace(day=1)


def month_after(month: date) -> date:
    """First day of the next month."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


@dataclass(frozen=True, slots=True)
class LockedPeriods:
    """Months of some tenants that nobody can close, or write usage to, before this transaction ends."""

    open_months: Mapping[UUID, Sequence[date]]  # rising

    def invoiced_in(self, tenant_id: UUID, month: date) -> date:
        """The month whose invoice usage of ``month`` is on: itself, or the tenant's oldest open one after it."""
        return next(start for start in self.open_months[tenant_id] if start >= month)


def periods_lock(months: Collection[TenantMonth], *, now: datetime) -> LockedPeriods:
    """Lock these months and all later ones of their tenants, in key order; months nobody knew yet are made.

    All up to the month of ``now`` are among them: usage of a closed month always finds an open one, and one that
    nobody knew yet is not passed over. At most three statements. Rows are made before any is locked: whoever waits for
    somebody else's new row holds nothing they could wait for.
    """
    wanted = sorted({*months, *(later for month in months for later in _up_to(month, month_of(now)))})
    tenants, first = {tenant_id for tenant_id, _ in wanted}, min(start for _, start in wanted)
    rows = BillingPeriod.objects.filter(tenant_id__in=tenants, start__gte=first)
    known = set(rows.values_list("tenant_id", "start"))
    missing = [
        BillingPeriod(tenant_id=tenant_id, start=start)
        for tenant_id, start in wanted
        if (tenant_id, start) not in known
    ]
    if missing:
        BillingPeriod.objects.bulk_create(missing, ignore_conflicts=True)
    open_months: defaultdict[UUID, list[date]] = defaultdict(list)
    locked = rows.order_by("tenant_id", "start").select_for_update(no_key=True)
    for tenant_id, start, closed_at in locked.values_list("tenant_id", "start", "closed_at"):
        if closed_at is None:
            open_months[tenant_id].append(start)
    return LockedPeriods(open_months)


def _up_to(month: TenantMonth, last: date) -> Iterator[TenantMonth]:
    """The tenant's months after this one until ``last``, which is always among them."""
    tenant_id, start = month
    while start < last:
        start = month_after(start)
        yield tenant_id, start
    yield tenant_id, last
