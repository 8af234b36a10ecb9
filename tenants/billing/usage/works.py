"""What is told about usage: one event with its lines, and why some of them have no effect."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from uuid import UUID

from gpu_runtime.protocol.base import fingerprint
from gpu_runtime.protocol.messages import UsageLine
from gpu_runtime.protocol.ordering import PRIORITY_DEFAULT
from tenants.billing.models import Meter
from tenants.errors import ApplicationError

FUTURE_TOLERANCE = timedelta(minutes=5)  # how far the clocks of the machines that meter may run ahead
QUANTITY_MAX = 10**15  # of one line: three years of device time, or a petabyte for an hour
Key = tuple[UUID, str]  # tenant and event id: with the source, unique for ever


class Refusal(StrEnum):
    """Why an event has no effect. Each is logged as an error."""

    CONFLICT = "usage_conflict"  # the id is on the books with other content; the first telling stands
    FUTURE = "usage_in_future"  # it claims to happen later than clocks may differ
    IMPLAUSIBLE = "usage_implausible"  # a quantity or an amount beyond what any job can use
    CURRENCY = "usage_foreign_currency"  # its price is not in the tenant's currency: it cannot be on its bill


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An event without effect."""

    tenant_id: UUID
    event_id: str
    code: Refusal


@dataclass(frozen=True, kw_only=True)
class MeteredWork:
    """One usage event of one tenant.

    ``project_id``, ``key_id`` and ``priority`` are the job's: whom it is put down to and which price factor counts.
    """

    tenant_id: UUID
    job_id: UUID
    event_id: str
    lines: Sequence[UsageLine]
    occurred_at: datetime
    billable: bool = True
    reason: str = ""
    project_id: UUID | None = None
    key_id: UUID | None = None
    priority: int = PRIORITY_DEFAULT

    @property
    def key(self) -> Key:
        return self.tenant_id, self.event_id

    @property
    def free_reason(self) -> str:
        """Why it costs nothing; empty if it is billed."""
        return "" if self.billable else (self.reason or "not_billable")

    @cached_property
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

    def fault(self, now: datetime) -> Refusal | None:
        """Why it cannot be true, told at ``now``; None if it can."""
        if self.occurred_at > now + FUTURE_TOLERANCE:
            return Refusal.FUTURE
        if not all(0 <= line.quantity <= QUANTITY_MAX for line in self.lines):
            return Refusal.IMPLAUSIBLE
        return None
