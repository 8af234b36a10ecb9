"""Journal entries as rows: collected per batch, written in bulk; what exists already is left as it is."""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from gpu_runtime.protocol.messages import (
    ArtifactPublished,
    Event,
    LogWritten,
    MetricsRecorded,
    PolicyVersionPublished,
    SpanMeasured,
    UsageMetered,
)
from jobs.models import Artifact, ArtifactKind, DeviceSpan, Job, JobEvent, MetricPoint, PolicyVersion
from jobs.services.curves import points_add
from jobs.services.dataset_import import imports_request
from tenants.billing.usage.batches import Ingested, MeteredWork, usage_ingest_batch
from tenants.models import Tenant
from tenants.quotas.storage import storage_add

logger = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH = 500
T = TypeVar("T")


def moment(us: int) -> datetime:
    """Unix microseconds as a datetime, without a detour over floats."""
    return _EPOCH + timedelta(microseconds=us)


def clean(value: T) -> T:
    """A JSON value both databases can hold: no NUL in strings, no number that is not finite (null instead)."""
    result: Any = value
    if isinstance(value, str):
        result = value.replace("\x00", "\ufffd")
    elif isinstance(value, float) and not math.isfinite(value):
        result = None
    elif isinstance(value, dict):
        result = {clean(key): clean(item) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        result = [clean(item) for item in value]
    return result


class Rows:
    """The rows of one batch."""

    def __init__(self) -> None:
        self.works: list[MeteredWork] = []
        self.events: list[JobEvent] = []
        self.points: list[MetricPoint] = []
        self.spans: list[DeviceSpan] = []
        self.artifacts: list[Artifact] = []
        self.policies: list[PolicyVersion] = []
        self.progressed: defaultdict[tuple[UUID, int], dict[str, int]] = defaultdict(dict)

    def write(self, *, source: str, more_accounts: Collection[UUID] = ()) -> Ingested:
        """A few statements per table. The unique constraints make a second telling of the same fact a no-op.

        ``more_accounts``: tenants whose money the caller moves afterwards, to be locked in order with the others.
        Returns what became of the usage events: which were refused and why, and which jobs they were charged to.
        """
        self._count_stored()  # before the locks of billing
        ingested = usage_ingest_batch(self.works, source=source, more_accounts=more_accounts)
        JobEvent.objects.bulk_create(self.events, batch_size=_BATCH)
        points_add(self.points)
        DeviceSpan.objects.bulk_create(self.spans, ignore_conflicts=True, batch_size=_BATCH)
        Artifact.objects.bulk_create(self.artifacts, ignore_conflicts=True, batch_size=_BATCH)
        imports_request([row.runtime_key for row in self.artifacts if row.kind == ArtifactKind.DATASET])
        PolicyVersion.objects.bulk_create(self.policies, ignore_conflicts=True, batch_size=_BATCH)
        for (job_id, attempt), columns in self.progressed.items():
            Job.objects.filter(pk=job_id, attempt=attempt).update(**columns)
        return ingested

    def _count_stored(self) -> None:
        """Files that are told of for the first time take storage; tenants in the order of their locks."""
        keys = [row.runtime_key for row in self.artifacts]
        if not keys:
            return
        known = set(Artifact.objects.filter(runtime_key__in=keys).values_list("runtime_key", flat=True))
        stored: Counter[UUID] = Counter()
        for row in {row.runtime_key: row for row in self.artifacts if row.runtime_key not in known}.values():
            stored[row.tenant_id] += row.size_bytes
        for tenant in Tenant.objects.filter(pk__in=stored).order_by("pk"):
            storage_add(tenant, stored[tenant.pk])

    def newest_usage(self) -> frozenset[str]:
        """Ids of each job's last event of each kind: kinds are told apart by what they meter."""
        newest = {(work.job_id, frozenset(line.meter for line in work.lines)): work.event_id for work in self.works}
        return frozenset(newest.values())

    def usage(self, job: Job, event: Event, body: UsageMetered) -> None:
        """What the step cost, of any attempt: the work was done.

        Where no price is valid or a meter is unknown, the whole batch waits in the journal until that is repaired.
        """
        self.works.append(
            MeteredWork(
                tenant_id=job.tenant_id,
                job_id=job.pk,
                event_id=body.event_id,
                lines=body.lines,
                occurred_at=moment(event.occurred_at_us),
                billable=body.billable,
                reason=body.reason or "",
                project_id=job.project_id,
                key_id=job.api_key_id,
                priority=job.priority,
            )
        )

    def progress(self, job: Job, columns: dict[str, int]) -> None:
        if columns:
            self.progressed[job.pk, job.attempt].update(columns)

    def metrics(self, job: Job, event: Event, body: MetricsRecorded, seq: int) -> None:
        for name, value in body.values.items():
            finite = math.isfinite(value)
            self.points.append(
                MetricPoint(
                    tenant_id=job.tenant_id,
                    job_id=job.pk,
                    seq=seq,
                    attempt=event.attempt or 0,
                    series=clean(name)[:100],
                    step=body.step,
                    value=value if finite else None,
                    special="" if finite else str(value),  # "nan" | "inf" | "-inf"
                    occurred_at=moment(event.occurred_at_us),
                )
            )

    def log(self, job: Job, event: Event, body: LogWritten, seq: int) -> None:
        self._tell(job, event, seq, {"level": body.level, "message": body.message[:10_000]})

    def artifact(self, job: Job, event: Event, body: ArtifactPublished, seq: int) -> None:
        row = Artifact(
            tenant_id=job.tenant_id,
            job_id=job.pk,
            attempt=event.attempt or 0,
            runtime_key=body.artifact_id,
            kind=body.kind,
            media_type=clean(body.media_type)[:100],
            name=clean(body.name)[:200],
            policy_version=body.policy_version,
            size_bytes=body.bytes,
            sha256=body.sha256,
            manifest=clean(body.manifest),
            created_at=moment(event.occurred_at_us),
        )
        self.artifacts.append(row)
        told = {"kind": row.kind, "name": row.name, "policy_version": row.policy_version, "size_bytes": body.bytes}
        self._tell(job, event, seq, told)

    def policy_version(self, job: Job, event: Event, body: PolicyVersionPublished, seq: int) -> None:
        self.policies.append(
            PolicyVersion(
                tenant_id=job.tenant_id,
                job_id=job.pk,
                attempt=event.attempt or 0,
                version=body.version,
                step=body.step,
                checkpoint=body.checkpoint[:200],
                sha256=body.sha256,
                created_at=moment(event.occurred_at_us),
            )
        )
        self._tell(job, event, seq, {"version": body.version, "step": body.step})

    def span(self, journal_id: str, body: SpanMeasured) -> None:
        if sum(body.shares.values()) + body.overhead_us != body.busy_us:  # kept as told: the money check shows it
            logger.error("span %s of journal %s does not add up", body.span_id, journal_id)
        self.spans.append(
            DeviceSpan(
                journal_id=journal_id,
                span_id=body.span_id,
                service=body.service,
                started_at=moment(body.started_at_us),
                busy_us=body.busy_us,
                overhead_us=body.overhead_us,
                group_size=body.group_size,
                samples=body.samples,
                tokens=body.tokens,
                shares=body.shares,
            )
        )

    def _tell(self, job: Job, event: Event, seq: int, data: dict[str, Any]) -> None:
        self.events.append(
            JobEvent(
                tenant_id=job.tenant_id,
                job_id=job.pk,
                seq=seq,
                attempt=event.attempt or 0,
                type=event.body.type,
                data=clean(data),
                occurred_at=moment(event.occurred_at_us),
            )
        )
