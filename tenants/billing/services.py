"""Writing usage down: the insert of the event is the claim, and its price is settled in the same transaction."""

import logging
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from gpu_runtime.protocol.base import fingerprint
from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import Meter, PriceVersion, RatedUsage, UsageEvent
from tenants.billing.money import amount_of
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)


def usage_ingest(
    *,
    tenant: Tenant,
    job_id: UUID | str,
    source: str,
    event_id: str,
    lines: Sequence[UsageLine],
    occurred_at: datetime,
    billable: bool = True,
    reason: str | None = None,
) -> tuple[UsageEvent, ...]:
    """Store one usage event, one row per line, and rate it at the prices valid at ``occurred_at``.

    (tenant, source, event_id) takes effect once, for ever: a repeat is a no-op and returns the first rows; the
    same id with other content is logged and refused (409). What is not billable is rated at 0 and keeps its
    reason, so that every event has exactly one rating. Raises ApplicationError.
    """
    content = content_of(job_id, lines, occurred_at, billable, reason)
    with tenant_scope(tenant), transaction.atomic():
        known = _known(source, event_id, content)
        if known:
            return known
        try:
            with transaction.atomic():
                return tuple(
                    _insert(tenant, job_id, source, event_id, line, occurred_at, billable, reason, content)
                    for line in sorted(lines, key=lambda line: line.meter)
                )
        except IntegrityError:  # another ingest of the same event was first
            known = _known(source, event_id, content)
            if not known:
                raise
            return known


def price_add(*, meter: str, amount: Decimal, per: int, valid_from: datetime, currency: str = "EUR") -> PriceVersion:
    """Announce a price. Raises ApplicationError unless it starts in the future: what happened is never re-priced."""
    if meter not in Meter.values:
        raise ApplicationError(code="unknown_meter", detail=f"Meter {meter!r} is not one of {Meter.values}.")
    if valid_from <= timezone.now():
        raise ApplicationError(
            code="price_in_the_past", detail=f"A price must start in the future; got {valid_from.isoformat()}."
        )
    return PriceVersion.objects.create(meter=meter, amount=amount, per=per, valid_from=valid_from, currency=currency)


def content_of(
    job_id: UUID | str, lines: Sequence[UsageLine], occurred_at: datetime, billable: bool, reason: str | None
) -> str:
    """SHA-256 of everything an event says. Raises ApplicationError for no lines, unknown or repeated meters."""
    meters = [line.meter for line in lines]
    if not meters or len(set(meters)) != len(meters) or not set(meters) <= set(Meter.values):
        raise ApplicationError(
            code="usage_invalid", detail=f"A usage event needs one line per meter out of {Meter.values}; got {meters}."
        )
    return fingerprint(
        {
            "job_id": str(job_id),
            "lines": {line.meter: line.quantity for line in lines},
            "occurred_at": occurred_at.timestamp(),
            "billable": billable,
            "reason": reason or "",
        }
    )


def _known(source: str, event_id: str, content: str) -> tuple[UsageEvent, ...]:
    rows = tuple(UsageEvent.objects.filter(source=source, event_id=event_id).order_by("meter"))
    if any(row.content_sha256 != content for row in rows):
        logger.error("usage event %s of %s came again with other content: refused", event_id, source)
        raise ApplicationError(
            code="usage_conflict", status=409, detail=f"Usage event {event_id!r} is known with other content."
        )
    return rows


def _insert(
    tenant: Tenant,
    job_id: UUID | str,
    source: str,
    event_id: str,
    line: UsageLine,
    occurred_at: datetime,
    billable: bool,
    reason: str | None,
    content: str,
) -> UsageEvent:
    event = UsageEvent.objects.create(
        tenant=tenant,
        job_id=job_id,
        source=source,
        event_id=event_id,
        meter=line.meter,
        quantity=line.quantity,
        billable=billable,
        reason=reason or "",
        occurred_at=occurred_at,
        content_sha256=content,
    )
    price = price_at(line.meter, occurred_at)
    amount = amount_of(line.quantity, price.amount, price.per) if billable else Decimal(0)
    RatedUsage.objects.create(
        tenant=tenant, event=event, job_id=job_id, price=price, amount=amount, currency=price.currency
    )
    return event


def price_at(meter: str, moment: datetime) -> PriceVersion:
    """The price version valid at a moment. Raises ApplicationError if none is: usage is never silently free."""
    price = PriceVersion.objects.filter(meter=meter, valid_from__lte=moment).order_by("-valid_from").first()
    if price is None:
        raise no_price(meter, moment)
    return price


def no_price(meter: str, moment: datetime) -> ApplicationError:
    """The refusal of usage nobody has priced."""
    return ApplicationError(
        code="no_price", status=409, detail=f"No price of {meter!r} is valid at {moment.isoformat()}."
    )
