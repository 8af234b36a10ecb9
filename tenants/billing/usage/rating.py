"""Rating events in memory: their prices, factors and amounts, and the month's running totals they advance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from uuid import UUID

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import MeterTotal, PriceVersion
from tenants.billing.prices.pricing import charge
from tenants.billing.prices.tariffs import Tariffs
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.works import MeteredWork, Refusal
from tenants.models import Tenant

AMOUNT_MAX = Decimal(100_000)  # of one line; far beyond what an hour of the whole platform can cost
TotalKey = tuple[UUID, str, date]  # tenant, meter, month


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedLine:
    """One line with its money."""

    work: MeteredWork
    line: UsageLine
    version: PriceVersion
    permille: int
    amount: Decimal


@dataclass(slots=True)
class Rater:
    """Rates works of many tenants one after the other. The months' periods must be locked by this transaction."""

    tariffs: Tariffs
    currencies: Mapping[UUID, str]  # of the tenants
    totals: dict[TotalKey, int]  # billable units before this batch
    advanced: dict[TotalKey, int] = field(default_factory=dict)  # by this batch

    @classmethod
    def read(cls, works: Sequence[MeteredWork]) -> "Rater":
        """Prices, and where they count on, the running totals. At most six statements."""
        tenants = {work.tenant_id for work in works}
        meters = {line.meter for work in works for line in work.lines}
        tariffs = Tariffs(tenants, meters)
        currencies = dict(Tenant.objects.filter(pk__in=tenants).values_list("pk", "currency"))
        totals: dict[TotalKey, int] = {}
        if tariffs.any_counts_on:
            months = {month_of(work.occurred_at) for work in works}
            rows = MeterTotal.objects.filter(tenant_id__in=tenants, meter__in=meters, month__in=months)
            columns = rows.values_list("tenant_id", "meter", "month", "quantity")
            totals = {(tenant_id, meter, month): quantity for tenant_id, meter, month, quantity in columns}
        return cls(tariffs, currencies, totals)

    def rate(self, work: MeteredWork) -> list[RatedLine] | Refusal:
        """The work's lines with their money; what is not billable costs 0 and advances no total.

        Or why they have no effect: a mistake about one tenant must not keep the others' usage from being rated.
        Raises ApplicationError ``no_price``.
        """
        rated = [self._line(work, line) for line in work.lines]
        if any(line.version.currency != self.currencies[work.tenant_id] for line in rated):
            return Refusal.CURRENCY
        if any(line.amount > AMOUNT_MAX for line in rated):
            return Refusal.IMPLAUSIBLE
        if work.billable:
            for line in work.lines:
                key = (work.tenant_id, line.meter, month_of(work.occurred_at))
                self.advanced[key] = self.advanced.get(key, 0) + line.quantity
        return rated

    def _line(self, work: MeteredWork, line: UsageLine) -> RatedLine:
        version = self.tariffs.version_at(work.tenant_id, line.meter, work.occurred_at)
        permille = self.tariffs.permille_at(version.plan_id, work.priority, work.occurred_at)
        amount = Decimal(0)
        if work.billable:
            key = (work.tenant_id, line.meter, month_of(work.occurred_at))
            before = self.totals.get(key, 0) + self.advanced.get(key, 0)
            amount = charge(self.tariffs.price(version), line.quantity, before=before, permille=permille)
        return RatedLine(work=work, line=line, version=version, permille=permille, amount=amount)
