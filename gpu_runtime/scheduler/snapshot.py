"""Crash and reload: the queue as JSON, and what becomes of the work a crash interrupted."""

from collections.abc import Collection
from dataclasses import asdict, fields
from typing import Any

from gpu_runtime.protocol.ids import JobId, PartitionId
from gpu_runtime.scheduler.batch_former import BatchFormer
from gpu_runtime.scheduler.errors import require
from gpu_runtime.scheduler.job_table import JobTable
from gpu_runtime.scheduler.leases import Lease, LeaseBook
from gpu_runtime.scheduler.staleness import Freshness
from gpu_runtime.scheduler.states import IN_PRODUCTION, Purpose, TrainingJobState
from gpu_runtime.scheduler.training_job import TrainingJob
from gpu_runtime.scheduler.turns import Turns

FORMAT = 1
_FIELDS = tuple(field.name for field in fields(TrainingJob))


def dump(table: JobTable, turns: Turns, former: BatchFormer[PartitionId], leases: LeaseBook) -> dict[str, Any]:
    """Everything but the history: partitions that ended and were cleared are not asked for after a restart."""
    return {
        "format": FORMAT,
        "jobs": [_row(job) for job in table if not job.ended or job.clearing],
        "policy_versions": dict(turns.versions()),
        "former": former.dump(),
        "last_epoch": leases.last_epoch,
        "seq": table.seq,
    }


def restore(
    state: dict[str, Any], table: JobTable, turns: Turns, former: BatchFormer[PartitionId], leases: LeaseBook
) -> None:
    """Fill empty parts with what ``dump`` wrote. Old leases are in no book, so every old epoch is stale."""
    require(state.get("format") == FORMAT, "format", state.get("format"), str(FORMAT))
    former.restore(state["former"])
    leases.start_after(state["last_epoch"])
    for row in state["jobs"]:
        table.restore(_job(row))
    table.seq = state["seq"]
    turns.restore({JobId(job_id): version for job_id, version in state["policy_versions"].items()})


def recover(table: JobTable, turns: Turns, *, consumed: Collection[PartitionId], max_attempts: int) -> None:
    """Settle what the crash interrupted; a partition that ends takes the later ones of its job with it."""
    for job in [job for job in table if not job.ended and job.partition_id in consumed]:
        if job.state not in IN_PRODUCTION:
            turns.consume(job)
    for job in [job for job in table if job.state is TrainingJobState.LEASED]:
        turns.lapse(job, max_attempts=max_attempts)
    for job in [job for job in table if job.state in IN_PRODUCTION]:
        if not table.get(job.partition_id).ended:
            turns.end_with_followers(job, TrainingJobState.FAILED, "runtime_restart")
    for job_id in {job.job_id: None for job in table}:
        turns.offer(job_id)


def _row(job: TrainingJob) -> dict[str, Any]:
    """As ``asdict``, without copying every string: the queue may be dumped at each change."""
    row = {name: getattr(job, name) for name in _FIELDS}
    row["lease"] = asdict(job.lease) if job.lease else None
    row["freshness"] = asdict(job.freshness) if job.freshness else None
    return row


def _job(row: dict[str, Any]) -> TrainingJob:
    lease, freshness = row["lease"], row["freshness"]
    return TrainingJob(
        **row
        | {
            "state": TrainingJobState(row["state"]),
            "purpose": Purpose(row["purpose"]),
            "lease": Lease(**lease) if lease else None,
            "freshness": Freshness(**freshness) if freshness else None,
        }
    )
