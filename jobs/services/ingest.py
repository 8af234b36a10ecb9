"""Apply a batch of the runtime's journal and move the cursor, in ONE transaction: exactly once, whatever dies."""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TypeGuard
from uuid import UUID

from django.db import transaction

from gpu_runtime.protocol.messages import (
    ArtifactPublished,
    Event,
    EventBatch,
    LogWritten,
    MetricsRecorded,
    PolicyVersionPublished,
    SpanMeasured,
    StateChanged,
    UsageMetered,
)
from jobs.models import Job, JobAttempt, RuntimeCursor
from jobs.services import ingest_rows
from jobs.services.attempts import attempt_follow
from jobs.services.transition import job_transition, seq_reserve
from jobs.states import (
    ATTEMPT_FENCED,
    ATTEMPT_STATE_OF_WORKLOAD,
    JOB_STATE_OF_WORKLOAD,
    LIVE,
    TERMINAL,
    AttemptState,
    JobState,
)
from tenants.billing.ledger.holds import hold_release
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)


class CursorAhead(Exception):
    """The batch starts after a later entry than the database has applied: taking it would lose what lies between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a batch; ``newest`` are the wakes to publish after the commit."""

    cursor: int
    applied: int  # entries seen for the first time
    skipped: int  # entries at or below the cursor
    refused: Counter[str]  # entries without effect, by reason: none in a healthy platform except "stale_attempt"
    newest: dict[tuple[UUID, UUID], int]  # (tenant id, job id) -> seq
    charged: tuple[tuple[UUID, UUID], ...] = ()  # (tenant id, job id) of new usage: caps look at their tenants
    newest_usage: frozenset[str] = frozenset()  # each charged job's last event of each kind in the batch


def batch_apply(batch: EventBatch, *, after: int) -> Applied:
    """Give every entry its effect once. ``after`` is the cursor the batch was asked with.

    The cursor's row is locked first, so of two relays (or a replay) the second finds its entries applied.
    Raises CursorAhead.
    """
    with platform_scope(), transaction.atomic():
        RuntimeCursor.objects.get_or_create(journal_id=batch.journal_id)
        cursor = RuntimeCursor.objects.select_for_update().get(journal_id=batch.journal_id)
        if after > cursor.last_seq:
            raise CursorAhead(f"batch starts after {after}, applied up to {cursor.last_seq}")
        fresh = sorted((e for e in batch.events if e.seq > cursor.last_seq), key=lambda event: event.seq)
        work = _Ingest(batch.journal_id, fresh)
        work.apply_all()
        if fresh:
            cursor.last_seq = fresh[-1].seq
            cursor.save(update_fields=["last_seq", "updated_at"])
        return Applied(
            cursor=cursor.last_seq,
            applied=len(fresh),
            skipped=len(batch.events) - len(fresh),
            refused=work.refused,
            newest={(job.tenant_id, job.pk): job.last_seq for job in work.jobs.values()},
            charged=work.charged,
            newest_usage=work.rows.newest_usage(),
        )


class _Ingest:
    """One batch under way: the jobs it touches (locked, in key order), their streams and the rows to write."""

    def __init__(self, journal_id: str, events: list[Event]) -> None:
        self.journal_id = journal_id
        self.events = events
        self.refused: Counter[str] = Counter()
        self.rows = ingest_rows.Rows()
        self.charged: tuple[tuple[UUID, UUID], ...] = ()
        self.ended: set[tuple[UUID, UUID]] = set()  # (tenant, job): their holds are given back
        self.next_seq = self._reserve()
        self.jobs = {str(job.pk): job for job in Job.objects.filter(pk__in=self.next_seq).select_related("tenant")}
        attempts = JobAttempt.objects.filter(job_id__in=self.next_seq, state__in=ATTEMPT_FENCED)
        self.fenced = set(attempts.values_list("job_id", "number"))

    def apply_all(self) -> None:
        for event in self.events:
            reason = self._apply(event)
            if reason is not None:
                self.refused[reason] += 1
                level = logging.INFO if reason == "stale_attempt" else logging.ERROR
                logger.log(level, "journal %s entry %d refused: %s", self.journal_id, event.seq, reason)
        payers = {tenant_id for tenant_id, _ in self.ended}
        ingested = self.rows.write(source=self.journal_id, more_accounts=payers)
        for _, job_id in sorted(self.ended):
            hold_release(job_id=job_id)  # after its last usage was captured from it
        self.charged = ingested.charged
        self.refused.update(refusal.code.value for refusal in ingested.refused)

    def _reserve(self) -> dict[str, int]:
        """One stream number per entry and job. In key order, so that two batches cannot deadlock."""
        counts = Counter(event.job_id for event in self.events if _is_uuid(event.job_id))
        first = {job_id: seq_reserve(UUID(job_id), count) for job_id, count in sorted(counts.items())}
        return {job_id: seq for job_id, seq in first.items() if seq is not None}

    def _apply(self, event: Event) -> str | None:
        """Give one entry its effect; else the reason why it has none."""
        body = event.body
        if isinstance(body, SpanMeasured):
            self.rows.span(self.journal_id, body)
            return None
        job = self.jobs.get(event.job_id or "")
        if job is None or event.attempt is None:
            return "unknown_job"
        if event.tenant_id != str(job.tenant_id):
            return "foreign_tenant"
        seq = self.next_seq[str(job.pk)]
        self.next_seq[str(job.pk)] = seq + 1
        if isinstance(body, UsageMetered):
            self.rows.usage(job, event, body)
            return None
        if isinstance(body, MetricsRecorded):
            self.rows.metrics(job, event, body, seq)
            self._progress(job, event, step=body.step)
            return None
        return self._effect(job, event, seq)

    def _effect(self, job: Job, event: Event, seq: int) -> str | None:
        """What only the present attempt may do."""
        body = event.body
        if isinstance(body, StateChanged):
            self._follow(job, event, body)
        if not self._is_present(job, event):
            return "stale_attempt"
        if isinstance(body, StateChanged):
            return self._state(job, event, body, seq)
        if isinstance(body, ArtifactPublished):
            self.rows.artifact(job, event, body, seq)
        elif isinstance(body, PolicyVersionPublished):
            self.rows.policy_version(job, event, body, seq)
        elif isinstance(body, LogWritten):
            self.rows.log(job, event, body, seq)
        return None

    def _is_present(self, job: Job, event: Event) -> bool:
        return event.attempt == job.attempt and (job.pk, event.attempt) not in self.fenced

    def _follow(self, job: Job, event: Event, body: StateChanged) -> None:
        state: AttemptState = ATTEMPT_STATE_OF_WORKLOAD[body.state]
        attempt_follow(job.pk, event.attempt or 0, state, reason=body.reason or "")

    def _state(self, job: Job, event: Event, body: StateChanged, seq: int) -> str | None:
        target = JOB_STATE_OF_WORKLOAD[body.state]
        if job.state not in TERMINAL:
            self._progress(job, event, step=body.step, total_steps=body.total_steps)
        if target in TERMINAL or (target != job.state and job.state in LIVE - {JobState.CANCELLING}):
            moment = ingest_rows.moment(event.occurred_at_us)
            reason, message = ingest_rows.clean(body.reason or ""), ingest_rows.clean(body.message or "")
            moved = job_transition(
                job, to=target, reason=reason, message=message, occurred_at=moment, seq=seq, release_hold=False
            )
            if moved is not None and target in TERMINAL:
                self.ended.add((job.tenant_id, job.pk))
            # A late "starting" of a job that already runs is history, not a contradiction.
            if moved is None and target in TERMINAL:
                return "not_allowed_from_" + str(job.state)
        return None

    def _progress(self, job: Job, event: Event, *, step: int, total_steps: int = 0) -> None:
        """Steps of the present attempt; a new attempt may go back to its checkpoint."""
        if self._is_present(job, event):
            columns = {"step": step, "total_steps": total_steps}
            self.rows.progress(job, {name: value for name, value in columns.items() if value})


def _is_uuid(text: str | None) -> TypeGuard[str]:
    try:
        return text is not None and str(UUID(text)) == text
    except ValueError:
        return False
