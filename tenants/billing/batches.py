"""Writing usage down: stored once, rated in the same transaction, many events in a fixed number of statements."""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from gpu_runtime.protocol.base import fingerprint
from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import DEFAULT_PLAN, Meter, PriceVersion, RatedUsage, UsageEvent
from tenants.billing.money import amount_of
from tenants.errors import ApplicationError

logger = logging.getLogger(__name__)

_ROWS_PER_STATEMENT = 500
Key = tuple[UUID, str]  # tenant and event id: with the source, unique for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredWork:
    """One usage event of one tenant."""

    tenant_id: UUID
    job_id: UUID
    event_id: str
    lines: Sequence[UsageLine]
    occurred_at: datetime
    billable: bool = True
    reason: str = ""

    @property
    def key(self) -> Key:
        return self.tenant_id, self.event_id

    @property
    def content_sha256(self) -> str:
        """SHA-256 of everything it says. Raises ApplicationError for no lines, unknown or repeated meters."""
        meters = [line.meter for line in self.lines]
        if not meters or len(set(meters)) != len(meters) or not set(meters) <= set(Meter.values):
            raise ApplicationError(
                code="usage_invalid",
                detail=f"A usage event needs one line per meter out of {Meter.values}; got {meters}.",
            )
        return fingerprint(
            {
                "job_id": str(self.job_id),
                "lines": {line.meter: line.quantity for line in self.lines},
                "occurred_at": self.occurred_at.timestamp(),
                "billable": self.billable,
                "reason": self.reason,
            }
        )


@transaction.atomic
def usage_ingest_batch(works: Sequence[MeteredWork], *, source: str) -> list[Key]:
    """Store and rate events of any tenants; needs the platform's scope. Returns the keys refused.

    (tenant, source, event_id) takes effect once, for ever: a repeat is a no-op, the same key with other content
    is logged and refused, the first telling stands. What is not billable is rated at 0 and keeps its reason, so
    that every event has exactly one rating. Raises ApplicationError for unknown meters or if no price is valid, and
    then stores nothing. The caller makes sure that one source is ingested by one transaction at a time.
    """
    told = _known(works, source)
    fresh: list[MeteredWork] = []
    refused: list[Key] = []
    for work in works:
        content = work.content_sha256
        if work.key not in told:
            told[work.key] = content
            fresh.append(work)
        elif told[work.key] != content:
            logger.error("usage event %s of %s came again with other content: refused", work.event_id, source)
            refused.append(work.key)
    _store(fresh, source)
    return refused


def _known(works: Sequence[MeteredWork], source: str) -> dict[Key, str]:
    """Content of the events among these that are on the books."""
    ids = sorted({work.event_id for work in works})
    rows = UsageEvent.objects.filter(source=source, event_id__in=ids)
    told = rows.values_list("tenant_id", "event_id", "content_sha256")
    return {(tenant_id, event_id): content for tenant_id, event_id, content in told}


def _store(works: Sequence[MeteredWork], source: str) -> None:
    prices = _Prices(line.meter for work in works for line in work.lines)
    events = UsageEvent.objects.bulk_create(
        [_event(work, line, source) for work in works for line in work.lines], batch_size=_ROWS_PER_STATEMENT
    )
    RatedUsage.objects.bulk_create([_rated(event, prices) for event in events], batch_size=_ROWS_PER_STATEMENT)


def _event(work: MeteredWork, line: UsageLine, source: str) -> UsageEvent:
    return UsageEvent(
        tenant_id=work.tenant_id,
        job_id=work.job_id,
        source=source,
        event_id=work.event_id,
        meter=line.meter,
        quantity=line.quantity,
        billable=work.billable,
        reason=work.reason,
        occurred_at=work.occurred_at,
        content_sha256=work.content_sha256,
    )


def _rated(event: UsageEvent, prices: "_Prices") -> RatedUsage:
    price = prices.at(event.meter, event.occurred_at)
    amount = amount_of(event.quantity, price.amount, price.per) if event.billable else Decimal(0)
    return RatedUsage(
        tenant_id=event.tenant_id,
        event=event,
        job_id=event.job_id,
        price=price,
        amount=amount,
        currency=price.currency,
        period=event.occurred_at.astimezone(UTC).date().replace(day=1),
    )


class _Prices:
    """The price versions of some meters, read once."""

    def __init__(self, meters: Iterable[str]) -> None:
        self._versions: dict[str, list[PriceVersion]] = {}
        for version in PriceVersion.objects.filter(plan__code=DEFAULT_PLAN, meter__in=set(meters)).order_by(
            "valid_from"
        ):
            self._versions.setdefault(version.meter, []).append(version)

    def at(self, meter: str, moment: datetime) -> PriceVersion:
        """The version valid at a moment. Raises ApplicationError if none is: usage is never silently free."""
        versions = self._versions.get(meter, [])
        index = bisect_right(versions, moment, key=lambda version: version.valid_from)
        if index == 0:
            raise ApplicationError(
                code="no_price", status=409, detail=f"No price of {meter!r} is valid at {moment.isoformat()}."
            )
        return versions[index - 1]
