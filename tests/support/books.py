"""What a runtime wrote down: its events after it ended, and whether its books balance."""

from collections import Counter
from pathlib import Path

from gpu_runtime.protocol.messages import Event
from gpu_runtime.store.journal import Journal


def written(state: Path, job_id: str | None = None) -> list[Event]:
    """Every event of a runtime that has ended."""
    journal = Journal(state / "journal.sqlite3")
    try:
        events = journal.read(after=0, limit=1_000_000)
    finally:
        journal.close()
    return [event for event in events if job_id is None or event.job_id == job_id]


def usage_by_meter(events: list[Event], *, billable: bool = True) -> Counter[str]:
    total: Counter[str] = Counter()
    for event in events:
        if event.body.type == "usage" and event.body.billable is billable:
            for line in event.body.lines:
                total[line.meter] += line.quantity
    return total


def check_books(events: list[Event]) -> None:
    """What is metered is what was measured, per service and tenant; shares and overhead make up every span."""
    measured: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event.body.type == "span":
            span = event.body
            assert span.busy_us == sum(span.shares.values()) + span.overhead_us
            for tenant, share_us in span.shares.items():
                measured[span.service, tenant] += share_us
    metered: Counter[tuple[str, str]] = Counter()
    services = {"train.compute_us": "training", "predict.compute_us": "inference", "env.compute_us": "environment"}
    for event in events:
        if event.body.type == "usage":
            for line in event.body.lines:
                if line.meter in services:
                    assert event.tenant_id is not None
                    metered[services[line.meter], event.tenant_id] += line.quantity
    assert +metered == +measured
