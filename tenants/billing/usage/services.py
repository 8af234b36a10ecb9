"""Usage of one event, told by whoever measures it."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError

from gpu_runtime.protocol.messages import UsageLine
from gpu_runtime.protocol.ordering import PRIORITY_DEFAULT
from tenants.billing.usage.batches import MeteredWork, Refusal, usage_ingest_batch
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import tenant_scope

_REFUSED = {
    Refusal.CONFLICT: "Usage event {event_id!r} is known with other content.",
    Refusal.FUTURE: "Usage event {event_id!r} claims to happen in the future.",
    Refusal.IMPLAUSIBLE: "Usage event {event_id!r} claims more than any job can use.",
    Refusal.CURRENCY: "Usage event {event_id!r} has no price in the currency of its tenant.",
}


def usage_ingest(
    *,
    tenant: Tenant,
    job_id: UUID,
    source: str,
    event_id: str,
    lines: Sequence[UsageLine],
    occurred_at: datetime,
    billable: bool = True,
    reason: str | None = None,
    project_id: UUID | None = None,
    key_id: UUID | None = None,
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
