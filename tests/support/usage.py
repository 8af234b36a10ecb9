"""Usage of a job, as the relay would report it, and prices that are easy to reckon with."""

import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from django.db import IntegrityError

from gpu_runtime.protocol.messages import UsageLine
from gpu_runtime.protocol.ordering import PRIORITY_DEFAULT
from tenants.billing.models import (
    DEFAULT_PLAN,
    BillingPeriod,
    PricePlan,
    PriceShape,
    PriceVersion,
    TenantPlan,
    UsageEvent,
)
from tenants.billing.usage.batches import Ingested, MeteredWork, Refusal, usage_ingest_batch
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope, tenant_scope
from tests.support.factories import moment

JOB = uuid.UUID(int=7)
_REFUSED = {
    Refusal.CONFLICT: "Usage event {event_id!r} is known with other content.",
    Refusal.FUTURE: "Usage event {event_id!r} claims to happen in the future.",
    Refusal.IMPLAUSIBLE: "Usage event {event_id!r} claims more than any job can use.",
    Refusal.CURRENCY: "Usage event {event_id!r} has no price in the currency of its tenant.",
}


def set_prices() -> None:
    """From 2026 on: 0.05 per 1,000 samples, 1 per 3,000,000,000 us (which no decimal fraction can say)."""
    for meter, amount, per in (("train.samples", "0.05", 1_000), ("train.compute_us", "1", 3_000_000_000)):
        set_price(meter, amount, per=per, valid_from=moment("2026-01-01T00:00:00"))


def set_price(
    meter: str, amount: str, *, per: int, valid_from: datetime, plan: str = DEFAULT_PLAN, **shape: Any
) -> PriceVersion:
    """A price of a plan from any moment on, the past included."""
    return PriceVersion.objects.create(
        plan=PricePlan.objects.get(code=plan),
        meter=meter,
        amount=Decimal(amount),
        per=per,
        valid_from=valid_from,
        **shape,
    )


def ingest(tenant: Tenant, *, samples: int = 16, compute_us: int = 1_000, **changes: Any) -> list[UsageEvent]:
    """One event of two lines; every argument of ``usage_ingest`` can be changed. Its rows, by meter."""
    event: dict[str, Any] = {
        "tenant": tenant,
        "job_id": uuid.uuid4(),
        "source": "journal-1",
        "event_id": str(uuid.uuid4()),
        "lines": (
            UsageLine(meter="train.samples", quantity=samples),
            UsageLine(meter="train.compute_us", quantity=compute_us),
        ),
        "occurred_at": moment("2026-05-01T12:00:00"),
    } | changes
    usage_ingest(**event)
    with platform_scope():
        rows = UsageEvent.objects.filter(tenant=tenant, source=event["source"], event_id=event["event_id"])
        return list(rows.select_related("rated__price").order_by("meter"))


def work(tenant: Tenant, *, samples: int | None = None, **changes: Any) -> MeteredWork:
    """One event of a batch: ``samples`` train samples, or ``lines`` (meter -> quantity)."""
    lines = changes.pop("lines", None) or {"train.samples": 16 if samples is None else samples}
    values: dict[str, Any] = {
        "tenant_id": tenant.pk,
        "job_id": JOB,
        "event_id": str(uuid.uuid4()),
        "occurred_at": moment("2026-05-01T12:00:00"),
    } | changes
    return MeteredWork(
        lines=tuple(UsageLine(meter=meter, quantity=quantity) for meter, quantity in lines.items()), **values
    )


def tell(*works: MeteredWork, source: str = "journal-1") -> Ingested:
    """One batch, as the relay would ingest it."""
    with platform_scope():
        return usage_ingest_batch(works, source=source)


def graduated(*tiers: tuple[int | None, str]) -> dict[str, Any]:
    """Fields of a graduated price, for ``set_price``."""
    return {
        "shape": PriceShape.GRADUATED,
        "tiers": [{"up_to": up_to, "amount": amount} for up_to, amount in tiers],
    }


def put_on_plan(tenant: Tenant, plan: PricePlan, *, since: datetime) -> TenantPlan:
    """From any moment on, the past included."""
    with platform_scope():
        return TenantPlan.objects.create(tenant=tenant, plan=plan, valid_from=since)


def close_month(tenant: Tenant, month: date) -> None:
    """As closing an invoice leaves it."""
    with platform_scope():
        BillingPeriod.objects.update_or_create(
            tenant=tenant, start=month, defaults={"closed_at": datetime.now(tz=UTC)}
        )


def usage_ingest(
    *,
    tenant: Tenant,
    job_id: uuid.UUID,
    source: str,
    event_id: str,
    lines: Sequence[UsageLine],
    occurred_at: datetime,
    billable: bool = True,
    reason: str | None = None,
    project_id: uuid.UUID | None = None,
    key_id: uuid.UUID | None = None,
    priority: int = PRIORITY_DEFAULT,
) -> None:
    """Store and rate one event, whoever else does so at the same time; the rules of `usage_ingest_batch`.

    Raises ApplicationError, 409 if it is refused: its code says why.
    """
    work = MeteredWork(
        tenant_id=tenant.pk,
        job_id=job_id,
        event_id=event_id,
        lines=lines,
        occurred_at=occurred_at,
        billable=billable,
        reason=reason or "",
        project_id=project_id,
        key_id=key_id,
        priority=priority,
    )
    with tenant_scope(tenant):
        try:
            ingested = usage_ingest_batch([work], source=source)
        except IntegrityError:  # somebody was quicker, with another month: now it is on the books
            ingested = usage_ingest_batch([work], source=source)
    for refusal in ingested.refused:
        raise ApplicationError(code=refusal.code, status=409, detail=_REFUSED[refusal.code].format(event_id=event_id))
