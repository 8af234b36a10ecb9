"""Frames of a job's stream, as JSON."""

from dataclasses import asdict
from typing import Any

from jobs.models import Job
from jobs.selectors.shares import compute_share
from jobs.selectors.stream import StreamPage
from tenants.billing.usage.selectors import Cost, job_cost


def job_frame(page: StreamPage, *, with_bill: bool) -> dict[str, Any]:
    """``rows``: everything new with the job as it is now. Values that are not finite are null with ``special``."""
    return {
        "type": "rows",
        "events": page.events,
        "metrics": page.metrics,
        "job": _job(page.job, with_bill=with_bill),
        "seq": page.seq,
    }


def _job(job: Job, *, with_bill: bool) -> dict[str, Any]:
    row = {
        "id": str(job.pk),
        "state": job.state,
        "reason": job.reason,
        "message": job.message,
        "attempt": job.attempt,
        "step": job.step,
        "total_steps": job.total_steps,
        "started_at": _time(job.started_at),
        "finished_at": _time(job.finished_at),
    }
    if with_bill:
        cost = job_cost(job.tenant, job.pk)
        row |= {
            "cost": {"amount": f"{cost.amount:f}", "currency": cost.currency, "lines": _lines(cost)},
            "compute_share": compute_share(job.tenant, job),
        }
    return row


def _lines(cost: Cost) -> list[dict[str, Any]]:
    return [
        {
            "meter": line.meter,
            "quantity": line.quantity,
            "amount": f"{line.amount:f}",
            "free": [asdict(part) for part in line.free],
        }
        for line in cost.lines
    ]


def _time(moment: Any) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None
