"""Usage of a job, as the relay would report it, and prices that are easy to reckon with."""

import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import DEFAULT_PLAN, PricePlan, PriceVersion, UsageEvent
from tenants.billing.services import usage_ingest
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import moment


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
