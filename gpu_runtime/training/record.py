"""What one device step leaves in the journal: one span, each tenant's usage, each tenant's metrics."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_runtime.protocol.ids import PartitionId
from gpu_runtime.protocol.messages import MetricsRecorded, SpanMeasured, UsageLine, UsageMetered
from gpu_runtime.scheduler.accounting import Attribution, attribute
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.records import Entry, WorkloadChange
from gpu_runtime.training.clock import monotonic_us, unix_us
from gpu_runtime.training.evaluation import gather
from gpu_runtime.training.member import Member
from gpu_runtime.training.step import StepOutcome

SERVICE = "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """Entries and workload changes of one step, and each partition's share in microseconds."""

    entries: tuple[Entry, ...]
    changes: tuple[WorkloadChange, ...]
    attribution: Attribution


def record_step(outcome: StepOutcome, *, leased_at_us: int) -> StepRecord:
    """Attribute the measured time exactly and write down who used what. ``leased_at_us`` is monotonic."""
    attribution = attribute(outcome.measured, _weights(outcome.members))
    span_id, now_us = uuid.uuid4().hex, unix_us()
    entries = [Entry(body=_span(outcome, attribution, span_id), occurred_at_us=now_us)]
    changes = []
    for member in outcome.members:
        share_us = attribution.shares[member.partition_id]
        bodies: list[UsageMetered | MetricsRecorded] = [_usage(member, share_us, span_id, len(outcome.members))]
        values = _metrics(member, share_us, outcome, leased_at_us)
        if values:
            bodies.append(MetricsRecorded(step=member.work.step, values=values))
        entries += [_entry(member, body, now_us) for body in bodies]
        if member.applied and member.work.purpose is Purpose.TRAIN:
            job = member.job
            changes.append(WorkloadChange(job_id=job.job_id, attempt=job.attempt, step=member.work.step))
    return StepRecord(entries=tuple(entries), changes=tuple(changes), attribution=attribution)


def overhead_span(*, started_at_us: int, busy_us: int) -> SpanMeasured:
    """A measured step that nobody asked for and nobody pays."""
    return SpanMeasured(
        span_id=uuid.uuid4().hex,
        service=SERVICE,
        started_at_us=started_at_us,
        busy_us=busy_us,
        overhead_us=busy_us,
        shares={},
        group_size=0,
        samples=0,
        tokens=0,
    )


def _weights(members: Sequence[Member]) -> dict[PartitionId, int]:
    """Tokens in the shared forward; where nobody came that far there is nothing to share, and any weight will do."""
    weights = {member.partition_id: member.shared_tokens for member in members}
    return weights if any(weights.values()) else dict.fromkeys(weights, 1)


def _entry(member: Member, body: UsageMetered | MetricsRecorded, now_us: int) -> Entry:
    job = member.job
    return Entry(
        body=body,
        occurred_at_us=now_us,
        job_id=job.job_id,
        attempt=job.attempt,
        tenant_id=job.tenant_id,
        work=member.work.name if isinstance(body, UsageMetered) else None,
    )


def _span(outcome: StepOutcome, attribution: Attribution, span_id: str) -> SpanMeasured:
    shares: dict[str, int] = defaultdict(int)
    for member in outcome.members:
        shares[member.job.tenant_id] += attribution.shares[member.partition_id]
    return SpanMeasured(
        span_id=span_id,
        service=SERVICE,
        started_at_us=outcome.started_at_us,
        busy_us=outcome.measured.busy_us,
        overhead_us=attribution.overhead_us,
        shares=dict(shares),
        group_size=len(outcome.members),
        samples=sum(member.samples for member in outcome.members),
        tokens=sum(member.tokens for member in outcome.members),
    )


def _usage(member: Member, share_us: int, span_id: str, group_size: int) -> UsageMetered:
    """Every member's measured time; samples where an optimizer step was made of them. A fault is not billed."""
    lines = [UsageLine(meter="train.compute_us", quantity=share_us)]
    if member.applied and member.work.purpose is Purpose.TRAIN and member.samples:
        lines.insert(0, UsageLine(meter="train.samples", quantity=member.samples))
    reason = None if member.applied else ("cancelled" if member.skipped else "step_failed")
    return UsageMetered(
        event_id=f"{span_id}/{member.partition_id}",
        span_id=span_id,
        step=member.work.step,
        lines=tuple(lines),
        group_size=group_size,
        billable=member.applied,
        reason=reason,
    )


def _metrics(member: Member, share_us: int, outcome: StepOutcome, leased_at_us: int) -> dict[str, float]:
    if not member.applied:
        non_finite = member.failure is not None and member.failure.reason.startswith("non_finite")
        return {"train/nan_skips": 1.0} if non_finite else {}
    if member.work.purpose is Purpose.EVALUATE:
        return gather(member)
    if member.work.purpose is Purpose.FIT:
        return {}
    values = dict(member.metrics)
    if member.job.slot.kind == "rl":
        values["rollout/dropped_stale"] = float(member.job.dropped_stale)
    return values | _service_metrics(member, share_us, outcome, leased_at_us)


def _service_metrics(member: Member, share_us: int, outcome: StepOutcome, leased_at_us: int) -> dict[str, float]:
    """What the tenant cannot see from inside its head: company, waiting, share of the device."""
    job, now_us = member.job, monotonic_us()
    since_us = job.last_step_at_us if job.last_step_at_us is not None else leased_at_us
    job.last_step_at_us = now_us
    waited_us = leased_at_us - job.ready_at_us.get(member.partition_id, leased_at_us)
    hits = {} if member.feature_hits is None else {"service/feature_hits": member.feature_hits}
    return hits | {
        "train/nan_skips": 0.0,
        "train/samples_per_s": member.samples * 1e6 / max(1, now_us - since_us),
        "service/group_size": float(len(outcome.members)),
        "service/queue_wait_ms": waited_us / 1e3,
        "service/busy_share": share_us / max(1, outcome.measured.busy_us),
        "service/padding": 0.0,  # packed forwards have none
    }
