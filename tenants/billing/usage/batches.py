"""Writing usage down: stored once, rated in the same transaction, many events in a fixed number of statements.

Late usage: a month takes events until its invoice is final, which is not before 72 hours after its end. What comes
later is rated at the price of the moment it happened and put on the invoice of the tenant's oldest open month after
its own, whether or not anybody used anything in that.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from tenants.billing.budgets.services import budgets_check
from tenants.billing.ledger.books import accounts_for_update
from tenants.billing.ledger.capture import Charge, usage_capture
from tenants.billing.models import MeterTotal, RatedUsage, UsageEvent, UsageRollup
from tenants.billing.usage.periods import month_of, periods_lock
from tenants.billing.usage.rating import RatedLine, Rater
from tenants.billing.usage.running_sums import sums_add
from tenants.billing.usage.works import Key, MeteredWork, Refusal, Refused

__all__ = ["Ingested", "Key", "MeteredWork", "Refusal", "Refused", "usage_ingest_batch"]

logger = logging.getLogger(__name__)

_ROWS_PER_STATEMENT = 500
_RollupKey = tuple[UUID, date, date, UUID, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of a batch."""

    refused: tuple[Refused, ...] = ()
    charged: tuple[tuple[UUID, UUID], ...] = ()  # (tenant id, job id) of everything new, in order, each once


@transaction.atomic
def usage_ingest_batch(works: Sequence[MeteredWork], *, source: str, more_accounts: Collection[UUID] = ()) -> Ingested:
    """Store and rate events of any tenants; needs the platform's scope, or that of their one tenant.

    (tenant, source, event_id) takes effect once, for ever: a repeat is a no-op, the same key with other content
    is logged and refused, the first telling stands. What is not billable is rated at 0 and keeps its reason, so
    that every event has exactly one rating. Raises ApplicationError for unknown meters or if no price is valid, and
    then stores nothing. Two transactions may tell the same events at once: the months' locks order them, except
    where they disagree about the month, which ends in an IntegrityError of the second.
    """
    if not works:
        return Ingested()
    refused: list[Refused] = []
    now = timezone.now()
    possible = [work for work in works if not _refuse(work, work.fault(now), source, refused)]
    if not possible:
        return Ingested(refused=tuple(refused))
    periods = periods_lock({(work.tenant_id, month_of(work.occurred_at)) for work in possible}, now=now)
    if more_accounts:
        accounts_for_update({*more_accounts, *(work.tenant_id for work in possible)})
    fresh = _fresh(possible, source, refused)
    rater = Rater.read(fresh)
    lines = _rated(fresh, rater, source, refused)
    if lines:
        months = [periods.invoiced_in(line.work.tenant_id, month_of(line.work.occurred_at)) for line in lines]
        events = _store(lines, months, source)
        _add_up(lines, months)
        _count(rater)
        usage_capture(_charges(lines, months), reference=f"usage:{events[0].pk}-{events[-1].pk}")
        budgets_check({line.work.tenant_id for line in lines})
    return Ingested(
        refused=tuple(refused),
        charged=tuple(dict.fromkeys((line.work.tenant_id, line.work.job_id) for line in lines)),
    )


def _refuse(work: MeteredWork, code: Refusal | None, source: str, refused: list[Refused]) -> bool:
    if code is None:
        return False
    told = {
        Refusal.CONFLICT: "came again with other content",
        Refusal.FUTURE: f"claims to happen at {work.occurred_at.isoformat()}",
        Refusal.IMPLAUSIBLE: f"claims {[(line.meter, line.quantity) for line in work.lines]}",
        Refusal.CURRENCY: f"of {work.occurred_at.isoformat()} has a price in a currency its tenant does not pay in",
    }[code]
    logger.error("usage event %s of %s %s: refused", work.event_id, source, told)
    refused.append(Refused(tenant_id=work.tenant_id, event_id=work.event_id, code=code))
    return True


def _fresh(works: Sequence[MeteredWork], source: str, refused: list[Refused]) -> list[MeteredWork]:
    """Events that nobody told before; of repeats those that contradict are refused."""
    told = _known(works, source)
    fresh = []
    for work in works:
        if work.key not in told:
            told[work.key] = work.content_sha256
            fresh.append(work)
        elif told[work.key] != work.content_sha256:
            _refuse(work, Refusal.CONFLICT, source, refused)
    return fresh


def _known(works: Sequence[MeteredWork], source: str) -> dict[Key, str]:
    """Content of the events among these that are on the books."""
    rows = UsageEvent.objects.filter(
        tenant_id__in={work.tenant_id for work in works},
        source=source,
        event_id__in=sorted({work.event_id for work in works}),
    )
    told = rows.values_list("tenant_id", "event_id", "content_sha256")
    return {(tenant_id, event_id): content for tenant_id, event_id, content in told}


def _rated(works: Sequence[MeteredWork], rater: Rater, source: str, refused: list[Refused]) -> list[RatedLine]:
    rated: list[RatedLine] = []
    for work in works:
        lines = rater.rate(work)
        if isinstance(lines, Refusal):
            _refuse(work, lines, source, refused)
        else:
            rated += lines
    return rated


def _store(lines: Sequence[RatedLine], months: Sequence[date], source: str) -> list[UsageEvent]:
    events = UsageEvent.objects.bulk_create([_event(line, source) for line in lines], batch_size=_ROWS_PER_STATEMENT)
    RatedUsage.objects.bulk_create(
        [_rating(line, event, month) for line, event, month in zip(lines, events, months, strict=True)],
        batch_size=_ROWS_PER_STATEMENT,
    )
    return events


def _add_up(lines: Sequence[RatedLine], months: Sequence[date]) -> None:
    """Add the lines to the running sums."""
    rollups: dict[_RollupKey, UsageRollup] = {}
    for line, month in zip(lines, months, strict=True):
        row = _rollup(line, month)
        key = (row.tenant_id, row.period, row.day, row.job_id, row.meter, row.reason)
        if key in rollups:
            rollups[key].quantity += row.quantity
            rollups[key].amount += row.amount
        else:
            rollups[key] = row
    unique = ("tenant", "period", "day", "job_id", "meter", "reason")
    sums_add(list(rollups.values()), unique=unique, sums=("quantity", "amount"))


def _charges(lines: Sequence[RatedLine], months: Sequence[date]) -> list[Charge]:
    """What each job owes for this batch, by the month whose invoice it is on."""
    owed: defaultdict[tuple[UUID, UUID, date, str], Decimal] = defaultdict(Decimal)
    for line, month in zip(lines, months, strict=True):
        owed[line.work.tenant_id, line.work.job_id, month, line.version.currency] += line.amount
    return [
        Charge(tenant_id=tenant_id, job_id=job_id, amount=amount, currency=currency, period=month)
        for (tenant_id, job_id, month, currency), amount in owed.items()
    ]


def _count(rater: Rater) -> None:
    """Advance the months' running totals."""
    rows = [
        MeterTotal(tenant_id=tenant_id, meter=meter, month=month, quantity=quantity)
        for (tenant_id, meter, month), quantity in rater.advanced.items()
    ]
    sums_add(rows, unique=("tenant", "meter", "month"), sums=("quantity",))


def _event(line: RatedLine, source: str) -> UsageEvent:
    work = line.work
    return UsageEvent(
        tenant_id=work.tenant_id,
        job_id=work.job_id,
        project_id=work.project_id,
        key_id=work.key_id,
        source=source,
        event_id=work.event_id,
        meter=line.line.meter,
        quantity=line.line.quantity,
        billable=work.billable,
        reason=work.reason,
        occurred_at=work.occurred_at,
        content_sha256=work.content_sha256,
    )


def _rating(line: RatedLine, event: UsageEvent, month: date) -> RatedUsage:
    return RatedUsage(
        tenant_id=line.work.tenant_id,
        event_id=event.pk,
        job_id=line.work.job_id,
        price_id=line.version.pk,
        factor_permille=line.permille,
        amount=line.amount,
        currency=line.version.currency,
        period=month,
    )


def _rollup(line: RatedLine, month: date) -> UsageRollup:
    work = line.work
    return UsageRollup(
        tenant_id=work.tenant_id,
        period=month,
        day=work.occurred_at.astimezone(UTC).date(),
        job_id=work.job_id,
        project_id=work.project_id,
        key_id=work.key_id,
        meter=line.line.meter,
        reason=work.free_reason,
        quantity=line.line.quantity,
        amount=line.amount,
        currency=line.version.currency,
    )
