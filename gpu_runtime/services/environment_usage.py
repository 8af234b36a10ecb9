"""What environments cost: one span and one usage event per report, durable together."""

import uuid
from dataclasses import dataclass

from gpu_runtime.protocol.messages import SpanMeasured, SubmitJob, UsageLine, UsageMetered
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.records import Entry, Write
from gpu_runtime.training.clock import unix_us
from gpu_runtime.workflows.ports import EnvironmentUse

SERVICE = "environment"
STEPS, COMPUTE_US = "env.steps", "env.compute_us"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUsage:
    """The meter of one attempt (``ports.EnvironmentMeter``). All of the time is its tenant's: sessions are not shared.

    Work of the same name is billed once; the journal sees to it.
    """

    submit: SubmitJob
    durability: Durability

    async def __call__(self, use: EnvironmentUse) -> None:
        """Return when it is on disk; nothing is written where nothing was used."""
        if not use.steps and not use.busy_us:
            return
        span = _span(use, self.submit.tenant_id)
        now_us, submit = unix_us(), self.submit
        usage = Entry(
            body=_metered(use, span.span_id, submit),
            occurred_at_us=now_us,
            job_id=submit.job_id,
            attempt=submit.attempt,
            tenant_id=submit.tenant_id,
            work=use.work,
        )
        await self.durability.write(Write(entries=(Entry(body=span, occurred_at_us=now_us), usage)))


def _span(use: EnvironmentUse, tenant_id: str) -> SpanMeasured:
    return SpanMeasured(
        span_id=uuid.uuid4().hex,
        service=SERVICE,
        started_at_us=use.started_at_us,
        busy_us=use.busy_us,
        overhead_us=0,
        shares={tenant_id: use.busy_us},
        group_size=use.processes,  # as everywhere: what the time is of, side by side
        samples=use.steps,
        tokens=0,
    )


def _metered(use: EnvironmentUse, span_id: str, submit: SubmitJob) -> UsageMetered:
    return UsageMetered(
        event_id=f"{span_id}/{submit.job_id}/{submit.attempt}",
        span_id=span_id,
        step=use.step,
        lines=(UsageLine(meter=STEPS, quantity=use.steps), UsageLine(meter=COMPUTE_US, quantity=use.busy_us)),
        group_size=use.seats,
        billable=use.reason is None,
        reason=use.reason,
    )
