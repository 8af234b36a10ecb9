"""What was asked and what became of it."""

import uuid

from django.db import models

from jobs.states import JobState
from tenants.scope import TenantOwned

JOB_STATES = [(state.value, state.value) for state in JobState]


class Job(TenantOwned):  # type: ignore[django-manager-missing]
    """One request of a tenant. The row is the truth; messages are only nudges."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=20)
    name = models.CharField(max_length=200)
    spec = models.JSONField()  # gpu_runtime.protocol.job_specs.JobSpec
    dataset_version = models.ForeignKey("datasets.DatasetVersion", on_delete=models.PROTECT, related_name="jobs")
    state = models.CharField(max_length=20, choices=JOB_STATES, default=JobState.QUEUED.value)
    reason = models.CharField(max_length=100, blank=True)  # machine-readable
    message = models.CharField(max_length=1000, blank=True)  # for people
    attempt = models.PositiveIntegerField(default=0)  # number of the newest attempt
    lease_until = models.DateTimeField(null=True)  # of the worker that dispatches it
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    last_seq = models.PositiveBigIntegerField(default=0)  # newest row of this job's stream
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="job_by_tenant"),
            models.Index(fields=["state", "lease_until"], name="job_by_state"),
        ]


class JobAttempt(TenantOwned):
    """One hand-over to the runtime. Effects of an older attempt are refused (fencing)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    journal_id = models.CharField(max_length=100, blank=True)  # the runtime that accepted it
    state = models.CharField(max_length=20, default="dispatching")
    reason = models.CharField(max_length=100, blank=True)
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="one_attempt_per_number")]


class JobEvent(TenantOwned):
    """Time line: state changes and log lines, in the job's own sequence (shared with metric points)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveBigIntegerField()
    attempt = models.PositiveIntegerField()
    type = models.CharField(max_length=30)  # state | log | artifact | policy_version
    data = models.JSONField()
    occurred_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "seq"], name="one_event_per_seq")]


class MetricPoint(TenantOwned):
    """One value of one series. ``value`` is null where the number is not finite; ``special`` says which."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics")
    seq = models.PositiveBigIntegerField()  # equal for all series of one step
    attempt = models.PositiveIntegerField()
    series = models.CharField(max_length=100)
    step = models.PositiveIntegerField()
    value = models.FloatField(null=True)
    special = models.CharField(max_length=5, blank=True)  # "nan" | "inf" | "-inf"
    occurred_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "series", "step"], name="one_point_per_step")]
        indexes = [
            models.Index(fields=["job", "seq"], name="points_after"),
            models.Index(fields=["job", "series", "step"], name="points_by_series"),
        ]


class PolicyVersion(TenantOwned):
    """A durable set of weights of one job's slot."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="policy_versions")
    attempt = models.PositiveIntegerField()
    version = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    checkpoint = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "version"], name="one_policy_version")]


class Artifact(TenantOwned):
    """A file a tenant can download; the runtime keeps the bytes, `runtime_key` names them there."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveIntegerField()
    runtime_key = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=20)
    name = models.CharField(max_length=200)
    policy_version = models.PositiveIntegerField()
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    manifest = models.JSONField()
    created_at = models.DateTimeField()


class OutboxMessage(models.Model):
    """A hand-over to Celery written in the transaction of its cause. Sent at least once; receivers are idempotent."""

    topic = models.CharField(max_length=50)  # jobs.services.outbox: dispatch_job | cancel_job
    key = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["sent_at", "created_at"], name="outbox_unsent")]


class RuntimeCursor(models.Model):
    """How far the relay has applied a runtime's journal. One row per journal, moved in the events' transaction."""

    journal_id = models.CharField(max_length=100, unique=True)
    last_seq = models.PositiveBigIntegerField(default=0)
    updated_at = models.DateTimeField(auto_now=True)


class DeviceSpan(models.Model):
    """One measured device step of a runtime service: what the bill is checked against."""

    journal_id = models.CharField(max_length=100)
    span_id = models.CharField(max_length=100)
    service = models.CharField(max_length=20)
    started_at = models.DateTimeField()
    busy_us = models.PositiveBigIntegerField()
    overhead_us = models.PositiveBigIntegerField()
    group_size = models.PositiveIntegerField()
    samples = models.PositiveIntegerField()
    tokens = models.PositiveIntegerField()
    shares = models.JSONField()  # tenant id -> microseconds; operators only

    class Meta:
        constraints = [models.UniqueConstraint(fields=["journal_id", "span_id"], name="span_once")]
        indexes = [models.Index(fields=["started_at"], name="spans_by_time")]


class RuntimeSnapshot(models.Model):
    """The newest status a runtime gave of itself (`RuntimeStatus`), for admission and the runtime page."""

    journal_id = models.CharField(max_length=100, unique=True)
    status = models.JSONField()
    seen_at = models.DateTimeField()
