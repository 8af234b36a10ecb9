"""Rows of the journal's tables as the values they stand for."""

from typing import Any

from pydantic import TypeAdapter

from gpu_runtime.protocol.messages import Event, EventBody, WorkloadState
from gpu_runtime.protocol.wire import unpack
from gpu_runtime.store.records import WorkloadRow

WORKLOAD_COLUMNS = "job_id, attempt, tenant_id, submit, digest, state, total_steps, step, reason, message"
_BODY: TypeAdapter[Any] = TypeAdapter(EventBody)


def event_of(row: tuple[Any, ...]) -> Event:
    """(seq, job, attempt, tenant, Unix microseconds, packed body)."""
    seq, job_id, attempt, tenant_id, occurred_at_us, body = row
    return Event(
        seq=seq,
        job_id=job_id,
        attempt=attempt,
        tenant_id=tenant_id,
        occurred_at_us=occurred_at_us,
        body=_BODY.validate_python(unpack(body)),
    )


def workload_of(row: tuple[Any, ...]) -> WorkloadRow:
    """``WORKLOAD_COLUMNS``, in their order."""
    values = dict(zip(WORKLOAD_COLUMNS.split(", "), row, strict=True))
    return WorkloadRow(**(values | {"state": WorkloadState(values["state"])}))
