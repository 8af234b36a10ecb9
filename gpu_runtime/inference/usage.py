"""Who used how much of the inference device: exact sums over steps, handed to the journal's writer now and then.

A step takes milliseconds and a durable write as long, so steps are summed until the last write is on disk. The shares
and the overhead add up to the measured busy time, in microseconds, always.
"""

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_runtime.inference.step import PredictOutcome
from gpu_runtime.protocol.ids import RequestId
from gpu_runtime.protocol.messages import SpanMeasured, UsageLine, UsageMetered
from gpu_runtime.scheduler.accounting import Attribution, attribute
from gpu_runtime.store.records import Entry

SERVICE = "inference"
CHUNKS, COMPUTE_US = "predict.chunks", "predict.compute_us"
FAILED = "predict_failed"


class Payer(NamedTuple):
    """A job's attempt."""

    tenant_id: str
    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictUsage:
    """One payer's part of a record. With a ``reason`` it is measured, not billed; of what failed no chunk counts."""

    payer: Payer
    chunks: int
    compute_us: int
    requests: int
    group_size: int  # requests per step, rounded, of the record's steps
    reason: str | None = None

    @property
    def billable(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRecord:
    """Some consecutive steps: ``sum(usage.compute_us) + overhead_us == busy_us``, always."""

    record_id: str  # unique for ever
    started_at_us: int  # Unix time, of the first step
    busy_us: int
    overhead_us: int
    steps: int
    requests: int
    samples: int
    tokens: int
    usages: tuple[PredictUsage, ...]

    def entries(self, now_us: int) -> tuple[Entry, ...]:
        """One span of the platform, one usage event per payer, in the journal's own words."""
        shares: defaultdict[str, int] = defaultdict(int)
        for usage in self.usages:
            shares[usage.payer.tenant_id] += usage.compute_us
        span = SpanMeasured(
            span_id=self.record_id,
            service=SERVICE,
            started_at_us=self.started_at_us,
            busy_us=self.busy_us,
            overhead_us=self.overhead_us,
            shares=dict(shares),
            group_size=round(self.requests / max(1, self.steps)),
            samples=self.samples,
            tokens=self.tokens,
        )
        return (Entry(body=span, occurred_at_us=now_us), *(self._entry(usage, now_us) for usage in self.usages))

    def _entry(self, usage: PredictUsage, now_us: int) -> Entry:
        lines = [UsageLine(meter=COMPUTE_US, quantity=usage.compute_us)]
        if usage.reason != FAILED:
            lines.insert(0, UsageLine(meter=CHUNKS, quantity=usage.chunks))
        metered = UsageMetered(
            event_id=f"{self.record_id}/{usage.payer.job_id}/{usage.payer.attempt}/{usage.reason or 'served'}",
            span_id=self.record_id,
            step=0,  # predictions are no training steps
            lines=tuple(lines),
            group_size=usage.group_size,
            billable=usage.billable,
            reason=usage.reason,
        )
        return Entry(
            body=metered,
            occurred_at_us=now_us,
            job_id=usage.payer.job_id,
            attempt=usage.payer.attempt,
            tenant_id=usage.payer.tenant_id,
        )


@dataclass(slots=True, kw_only=True)
class _Sum:
    """Of one payer."""

    chunks: int = 0
    compute_us: int = 0
    requests: int = 0
    members: int = 0  # sum of the group sizes its requests were in


@dataclass(slots=True, kw_only=True)
class _Open:
    """Steps that no record holds yet."""

    started_at_us: int = 0
    busy_us: int = 0
    overhead_us: int = 0
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    sums: defaultdict[tuple[Payer, str | None], _Sum] = field(default_factory=lambda: defaultdict(_Sum))


class PredictLedger:
    """Collects steps; ``drain`` hands out what was collected, once."""

    def __init__(self) -> None:
        self._open = _Open()

    @property
    def steps(self) -> int:
        """Steps that no record holds yet."""
        return self._open.steps

    def add(self, outcome: PredictOutcome) -> Attribution[RequestId]:
        """Split one step exactly; returns each request's share."""
        attribution = attribute(outcome.measured, _weights(outcome))
        total = self._open
        total.started_at_us = total.started_at_us or outcome.started_at_us
        total.busy_us += outcome.measured.busy_us
        total.overhead_us += attribution.overhead_us
        total.steps += 1
        for member in outcome.members:
            request, served = member.request, member.failure is None
            reason = request.unbilled if served else FAILED
            own = total.sums[Payer(request.tenant_id, request.job_id, request.attempt), reason]
            own.chunks += len(request.features) if served else 0
            own.compute_us += attribution.shares[member.request_id]
            own.requests += 1
            own.members += len(outcome.members)
            total.samples += len(request.features)
            total.tokens += member.tokens
        return attribution

    def drain(self) -> PredictRecord | None:
        """Everything since the last call; None when there was nothing."""
        total, self._open = self._open, _Open()
        if not total.steps:
            return None
        return PredictRecord(
            record_id=uuid.uuid4().hex,
            started_at_us=total.started_at_us,
            busy_us=total.busy_us,
            overhead_us=total.overhead_us,
            steps=total.steps,
            requests=sum(own.requests for own in total.sums.values()),
            samples=total.samples,
            tokens=total.tokens,
            usages=tuple(_usage(payer, reason, own) for (payer, reason), own in total.sums.items()),
        )


def _usage(payer: Payer, reason: str | None, total: _Sum) -> PredictUsage:
    return PredictUsage(
        payer=payer,
        chunks=total.chunks,
        compute_us=total.compute_us,
        requests=total.requests,
        group_size=round(total.members / total.requests),
        reason=reason,
    )


def _weights(outcome: PredictOutcome) -> Mapping[RequestId, int]:
    """Tokens in the shared forward; where nobody came that far there is nothing to share, and any weight will do."""
    weights = {member.request_id: member.shared_tokens for member in outcome.members}
    return weights if any(weights.values()) else dict.fromkeys(weights, 1)
