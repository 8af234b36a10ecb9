"""However a journal is cut into batches, repeated and interrupted, its rows are those of one clean pass."""

from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_runtime.protocol.messages import EventBatch, LogWritten, WorkloadState
from jobs.models import Job, RuntimeCursor
from jobs.selectors.money import reconcile_billing
from jobs.services.ingest import batch_apply
from tenants.billing.usage.selectors import usage_totals
from tests.support.jobs import events_of, points_of, start_job, states_of
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

STEPS = 6


class Killed(Exception):
    """The process died before its commit."""


def deliver(runtime: InMemoryRuntime, first: int, last: int, *, killed: bool) -> None:
    """Entries first..last, as a relay asked for them that knew everything before ``first``."""
    cursor = RuntimeCursor.objects.filter(journal_id=runtime.journal_id).values_list("last_seq", flat=True).first()
    after = min(first - 1, cursor or 0)  # a relay asks after a cursor it has read from the database
    batch = EventBatch(
        journal_id=runtime.journal_id, events=tuple(runtime.journal[after:last]), last_seq=len(runtime.journal)
    )
    try:
        with transaction.atomic():
            batch_apply(batch, after=after)
            if killed:
                raise Killed
    except Killed:
        pass


def rows(job: Job) -> dict[str, Any]:
    return {
        "states": states_of(job),
        "logs": [event.data["message"] for event in events_of(job, type="log")],
        "loss": [(point.step, point.value) for point in points_of(job, series="loss")],
    }


@pytest.mark.django_db
@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    deliveries=st.lists(
        st.tuples(st.integers(1, 3 * STEPS), st.integers(1, 8), st.booleans()),
        max_size=12,
    )
)
def test_any_cutting_repeating_and_killing_ends_in_the_rows_of_one_pass(
    alice: Person, deliveries: list[tuple[int, int, bool]]
) -> None:
    runtime = InMemoryRuntime()
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    for step in range(1, STEPS + 1):
        runtime.train_step([key], step, busy_us=100)
        runtime.tell(*key, LogWritten(level="info", message=str(step)))
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    for first, count, killed in deliveries:
        deliver(runtime, first, min(first + count - 1, len(runtime.journal)), killed=killed)
    deliver(runtime, 1, len(runtime.journal), killed=False)
    assert rows(job) == {
        "states": ["queued", "starting", "running", "succeeded"],
        "logs": [str(step) for step in range(1, STEPS + 1)],
        "loss": [(step, 1.0 / step) for step in range(1, STEPS + 1)],
    }
    quantities = {total.line.meter: total.line.quantity for total in usage_totals(alice.tenant, job_id=job.pk)}
    assert quantities == {"train.samples": 16 * STEPS, "train.compute_us": 100 * STEPS}
    assert reconcile_billing().ok
