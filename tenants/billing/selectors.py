"""Reading the bill. Sums are exact: quantities are integers, money is Decimal."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal
from uuid import UUID

from django.db.models import F, QuerySet, Sum
from django.db.models.functions import TruncDate

from tenants.billing.models import Meter, PriceVersion, RatedUsage, UsageEvent
from tenants.models import Tenant
from tenants.scope import platform_scope, tenant_scope

GroupBy = Literal["meter", "job", "day"]
DEFAULT_CURRENCY = "EUR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Work that was metered and not billed, and why."""

    reason: str
    quantity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One meter's share of a cost. ``amount`` has 12 places; round for display only. ``free``: part of it."""

    meter: str
    quantity: int
    amount: Decimal
    currency: str
    free: tuple[Free, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Priced usage: ``amount == sum(line.amount)``."""

    amount: Decimal
    currency: str
    lines: tuple[CostLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """Quantity and money of one meter within one group."""

    group: str | UUID | date
    line: CostLine


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingCheck:
    """What must hold over all tenants: every event has one rating."""

    events: int
    rated: int

    @property
    def unrated(self) -> int:
        return self.events - self.rated


def job_cost(tenant: Tenant, job_id: UUID | str) -> Cost:
    """What a job has cost so far."""
    with tenant_scope(tenant):
        return _cost(RatedUsage.objects.filter(job_id=job_id))


def job_costs(tenant: Tenant, job_ids: Collection[UUID]) -> dict[UUID, Cost]:
    """What each of these jobs has cost so far, in one query; jobs without usage cost nothing."""
    lines: dict[UUID, list[CostLine]] = {job_id: [] for job_id in job_ids}
    with tenant_scope(tenant):
        rated = RatedUsage.objects.filter(job_id__in=job_ids)
        for job_id, line in _lines(rated, "job_id"):
            lines[job_id].append(line)
    return {job_id: _total(tuple(own)) for job_id, own in lines.items()}


def tenant_cost(tenant: Tenant, *, since: datetime | None = None, until: datetime | None = None) -> Cost:
    """What a tenant has used within [since, until)."""
    with tenant_scope(tenant):
        rated = RatedUsage.objects.all()
        if since is not None:
            rated = rated.filter(event__occurred_at__gte=since)
        if until is not None:
            rated = rated.filter(event__occurred_at__lt=until)
        return _cost(rated)


def usage_totals(tenant: Tenant, *, job_id: UUID | None = None, group_by: GroupBy = "meter") -> list[UsageTotal]:
    """Usage by meter, by job and meter, or by UTC day and meter."""
    group: Any = {"meter": F("event__meter"), "job": F("job_id"), "day": TruncDate("event__occurred_at")}[group_by]
    with tenant_scope(tenant):
        rated = RatedUsage.objects.filter(job_id=job_id) if job_id else RatedUsage.objects.all()
        return [UsageTotal(group=own, line=line) for own, line in _lines(rated.annotate(group=group), "group")]


def prices() -> QuerySet[PriceVersion]:
    """Every price version, newest first. Prices belong to the platform and are the same for every tenant."""
    return PriceVersion.objects.order_by("meter", "-valid_from")


def metered_us(meter: Meter) -> dict[str, int]:
    """Measured time of one service on the books, tenant id -> microseconds.

    The other side is `jobs.DeviceSpan.shares`. Free work (``billable=False``) counts: it was measured, and is rated 0.
    """
    with platform_scope():
        rows = (
            UsageEvent.objects.filter(meter=meter)
            .values("tenant_id")
            .annotate(total=Sum("quantity"))
            .order_by("tenant_id")
        )
        return {str(row["tenant_id"]): int(row["total"]) for row in rows}


def rating_check() -> RatingCheck:
    """Count events and ratings over all tenants; ``unrated`` must be 0."""
    with platform_scope():
        return RatingCheck(events=UsageEvent.objects.count(), rated=RatedUsage.objects.count())


def _cost(rated: QuerySet[RatedUsage]) -> Cost:
    return _total(tuple(line for _, line in _lines(rated)))


def _lines(rated: QuerySet[RatedUsage], group: str = "") -> Iterator[tuple[Any, CostLine]]:
    """(value of ``group``, line) for every value, meter and currency, in that order."""
    keys = (*([group] if group else []), "event__meter", "currency")
    reasons = ("event__billable", "event__reason")
    rows = rated.values(*keys, *reasons).annotate(quantity=Sum("event__quantity"), total=Sum("amount"))
    for key, parts in groupby(rows.order_by(*keys, *reasons), key=lambda row: tuple(row[name] for name in keys)):
        yield key[0], _line(list(parts))


def _line(parts: list[dict[str, Any]]) -> CostLine:
    """Of one meter, by what was billed and why not."""
    free = [part for part in parts if not part["event__billable"]]
    return CostLine(
        meter=parts[0]["event__meter"],
        quantity=sum(int(part["quantity"]) for part in parts),
        amount=sum((part["total"] for part in parts), Decimal(0)),
        currency=parts[0]["currency"],
        free=tuple(Free(reason=part["event__reason"], quantity=int(part["quantity"])) for part in free),
    )


def _total(lines: tuple[CostLine, ...]) -> Cost:
    currencies = {line.currency for line in lines} or {DEFAULT_CURRENCY}
    if len(currencies) > 1:
        raise ValueError(f"usage in several currencies cannot be added up: {sorted(currencies)}")
    return Cost(amount=sum((line.amount for line in lines), Decimal(0)), currency=currencies.pop(), lines=lines)
