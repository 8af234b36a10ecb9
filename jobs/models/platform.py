"""The platform's own rows, of no tenant: hand-overs, the relay's cursor, measured time, the runtime's account."""

from django.db import models


class OutboxMessage(models.Model):
    """A hand-over to Celery written in the transaction of its cause. Sent at least once; receivers are idempotent."""

    topic = models.CharField(max_length=50)  # jobs.services.outbox: the topics
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
