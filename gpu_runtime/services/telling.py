"""What a workload says of itself: events of its attempt, durable in order."""

from dataclasses import dataclass

from gpu_runtime.protocol.messages import EventBody, MetricsRecorded, SubmitJob
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.records import Entry, WorkloadChange, Write
from gpu_runtime.training.clock import unix_us


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTeller:
    """``ports.Teller`` of one attempt.

    ``metrics_are_steps``: the step of its metrics is how far the attempt has come; the row of the attempt says so too.
    """

    submit: SubmitJob
    durability: Durability
    metrics_are_steps: bool = False

    async def __call__(self, *bodies: EventBody) -> None:
        """Return when they are on disk, all of them together."""
        submit, now_us = self.submit, unix_us()
        entries = tuple(
            Entry(
                body=body,
                occurred_at_us=now_us,
                job_id=submit.job_id,
                attempt=submit.attempt,
                tenant_id=submit.tenant_id,
            )
            for body in bodies
        )
        steps = [body.step for body in bodies if isinstance(body, MetricsRecorded)]
        changes: tuple[WorkloadChange, ...] = ()
        if self.metrics_are_steps and steps:
            changes = (WorkloadChange(job_id=submit.job_id, attempt=submit.attempt, step=max(steps)),)
        await self.durability.write(Write(entries=entries, changes=changes))
