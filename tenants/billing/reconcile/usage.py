"""Events, their ratings and the sums that everything else reads. All checks need the platform's scope."""

from datetime import UTC
from typing import Any

from django.db.models import Case, CharField, F, Q, Sum, Value, When
from django.db.models.functions import TruncDate, TruncMonth

from tenants.billing.models import MeterTotal, RatedUsage, UsageEvent, UsageRollup
from tenants.billing.reconcile.comparison import Comparison
from tenants.models import Tenant

_KEY = ("period", "day", "job_id", "meter", "reason")
# How `MeteredWork.free_reason` says why something is free.
_REASON = Case(
    When(event__billable=True, then=Value("")),
    When(event__reason="", then=Value("not_billable")),
    default=F("event__reason"),
    output_field=CharField(),
)


def every_event_is_rated() -> Comparison:
    """Each event has one rating, of its own tenant and job."""
    books = Comparison(compared=UsageEvent.objects.count())
    for event in UsageEvent.objects.filter(rated=None).iterator():
        books.wrong(event.tenant_id, _event(event), "one rating", "none")
    strange = ~Q(tenant_id=F("event__tenant_id")) | ~Q(job_id=F("event__job_id"))
    for rating in RatedUsage.objects.filter(strange).select_related("event").iterator():
        expected = f"tenant {rating.event.tenant_id}, job {rating.event.job_id}"
        found = f"tenant {rating.tenant_id}, job {rating.job_id}"
        books.wrong(rating.event.tenant_id, _event(rating.event), expected, found)
    return books


def free_work_costs_nothing() -> Comparison:
    """What is not billable is rated 0."""
    free = RatedUsage.objects.filter(event__billable=False)
    books = Comparison(compared=free.count())
    for rating in free.exclude(amount=0).select_related("event").iterator():
        books.wrong(rating.tenant_id, _event(rating.event), 0, rating.amount)
    return books


def running_sums_are_the_ratings() -> Comparison:
    """Quantity and money of every running sum follow from the events it sums up."""
    books = Comparison()
    for tenant_id in Tenant.objects.order_by("pk").values_list("pk", flat=True):
        ratings = (
            RatedUsage.objects.filter(tenant_id=tenant_id)
            .annotate(day=TruncDate("event__occurred_at", tzinfo=UTC), meter=F("event__meter"), reason=_REASON)
            .values(*_KEY)
            .annotate(units=Sum("event__quantity"), money=Sum("amount"))
            .order_by()
        )
        rollups = UsageRollup.objects.filter(tenant_id=tenant_id).values(*_KEY)
        sums = rollups.annotate(units=Sum("quantity"), money=Sum("amount")).order_by()
        books.equal_by_key(tenant_id, _by_key(ratings), _by_key(sums), _sum_name)
    return books


def meter_totals_are_the_billed_units() -> Comparison:
    """Graduated and package prices go on counting where the billed units of the month are."""
    books = Comparison()
    for tenant_id in Tenant.objects.order_by("pk").values_list("pk", flat=True):
        billed = (
            UsageRollup.objects.filter(tenant_id=tenant_id, reason="")
            .annotate(month=TruncMonth("day"))
            .values_list("meter", "month")
            .annotate(Sum("quantity"))
            .order_by()
        )
        counted = MeterTotal.objects.filter(tenant_id=tenant_id).values_list("meter", "month", "quantity")
        books.equal_by_key(tenant_id, _units(billed), _units(counted), lambda key: f"{key[0]} of {key[1]:%Y-%m}")
    return books


def _units(rows: Any) -> dict[tuple[str, Any], int]:
    return {(meter, month): int(units) for meter, month, units in rows if units}


def _by_key(rows: Any) -> dict[tuple[Any, ...], tuple[int, Any]]:
    return {tuple(row[name] for name in _KEY): (int(row["units"]), row["money"]) for row in rows}


def _sum_name(key: tuple[Any, ...]) -> str:
    period, day, job_id, meter, reason = key
    return f"{meter} of job {job_id} on {day}, invoice of {period:%Y-%m}" + (f", free: {reason}" if reason else "")


def _event(event: UsageEvent) -> str:
    return f"event {event.source}/{event.event_id} {event.meter}"
