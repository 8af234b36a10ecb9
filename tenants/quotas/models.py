"""How much of each thing a tenant, or one of its projects, may use; and what it stores."""

import uuid

from django.db import models

from tenants.scope import TenantOwned


class Resource(models.TextChoices):
    """What is limited; units in the comment. Concurrency queues, money and bytes refuse, request rate answers 429."""

    RUNNING_JOBS = "running_jobs"  # jobs starting, running or cancelling
    QUEUED_JOBS = "queued_jobs"  # jobs waiting; more are refused
    SLOTS = "slots"  # running jobs that train (sft, rl): each owns head and optimizer on a base
    ENV_SEATS = "env_seats"  # simulated environments that running jobs asked for, together
    STORAGE_BYTES = "storage_bytes"  # datasets and artifacts held, and uploads on their way
    UPLOADS = "uploads"  # uploads under way at once
    REQUESTS_PER_MINUTE = "requests_per_minute"  # to the API, of all keys and sessions together
    COMPUTE_S_PER_JOB = "compute_s_per_job"  # measured seconds, shares of all three services
    COMPUTE_S_PER_MONTH = "compute_s_per_month"  # the same of all jobs in a calendar month, UTC
    MONEY_PER_MONTH = "money_per_month"  # whole units of the tenant's currency


class Quota(TenantOwned):  # type: ignore[django-manager-missing]
    """A limit that differs from the platform's default. Of several that are in force the newest counts.

    ``project`` null: of the whole tenant; a project's limit applies beside the tenant's, never instead.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey("tenants.Project", on_delete=models.PROTECT, null=True, related_name="quotas")
    resource = models.CharField(max_length=40, choices=Resource.choices)
    limit = models.PositiveBigIntegerField()
    expires_at = models.DateTimeField(null=True)  # a raise for a while; then the one before it counts again
    reason = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)  # replaced or withdrawn

    class Meta:
        indexes = [models.Index(fields=["tenant", "resource", "-created_at"], name="quota_by_resource")]


class DefaultQuota(models.Model):
    """The platform's limit of every tenant that has none of its own. One row per resource; operators change it."""

    resource = models.CharField(max_length=40, choices=Resource.choices, unique=True)
    limit = models.PositiveBigIntegerField()
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.resource.replace("_", " ")


class StorageAccount(TenantOwned):
    """Bytes a tenant holds. One locked row: no reservation is ever late.

    What its bytes lasted is in `StorageHour`; ``byte_s`` is what metering left over, less than one byte-hour.
    """

    used_bytes = models.PositiveBigIntegerField(default=0)
    reserved_bytes = models.PositiveBigIntegerField(default=0)  # of uploads on their way
    accrued_at = models.DateTimeField()  # up to here the hours are counted; whole seconds
    byte_s = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant"], name="one_storage_account")]


class StorageHour(TenantOwned):
    """Byte-seconds a tenant's bytes lasted within one UTC hour: exact to the second, whenever it is metered."""

    hour = models.DateTimeField()  # its beginning
    byte_s = models.PositiveBigIntegerField()  # 64 bits are enough for two petabytes
    byte_hours = models.PositiveBigIntegerField(null=True)  # told to billing; null: not yet

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "hour"], name="one_storage_hour")]
        indexes = [models.Index(fields=["hour"], condition=models.Q(byte_hours=None), name="storage_hour_unmetered")]


class StorageLease(TenantOwned):  # type: ignore[django-manager-missing]
    """Bytes reserved for one transfer: a one-shot upload, the import of a job's recording, a chunked upload.

    Whoever holds it renews it; a killed process's lease expires, and the sweep gives its bytes back. That of a
    chunked upload (``expires_at`` null) lasts as long as the upload, which has an end of its own.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    reserved_bytes = models.PositiveBigIntegerField()
    expires_at = models.DateTimeField(null=True, db_index=True)
