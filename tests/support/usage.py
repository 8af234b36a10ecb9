"""Usage of a job, as the relay would report it."""

import uuid
from typing import Any

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import UsageEvent
from tenants.billing.services import usage_ingest
from tenants.models import Tenant
from tests.support.factories import moment


def ingest(tenant: Tenant, *, samples: int = 16, compute_us: int = 1_000, **changes: Any) -> tuple[UsageEvent, ...]:
    """One event of two lines; every argument of ``usage_ingest`` can be changed."""
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
    }
    return usage_ingest(**event | changes)
