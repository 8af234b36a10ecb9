"""How much: append-only usage, rated at ingest, and its running sums. Integers and Decimal, never float."""

from uuid import UUID

from django.db import models

from tenants.append_only import AppendOnly
from tenants.billing.money import MoneyField
from tenants.scope import TenantOwned

NO_JOB = UUID(int=0)  # of usage that belongs to no job: what is stored


class Meter(models.TextChoices):
    """What is counted; units in the comment."""

    TRAIN_SAMPLES = "train.samples"  # samples that went through an optimizer step
    TRAIN_COMPUTE_US = "train.compute_us"  # microseconds of measured device time, apportioned
    PREDICT_CHUNKS = "predict.chunks"  # action chunks a policy answered with
    PREDICT_COMPUTE_US = "predict.compute_us"  # microseconds of measured device time, apportioned
    ENV_STEPS = "env.steps"  # simulated steps
    ENV_COMPUTE_US = "env.compute_us"  # microseconds inside simulators, added up over processes
    STORAGE_BYTE_HOURS = "storage.byte_hours"  # bytes held times hours; priced per 10^9 of them, a GB-hour


COMPUTE_METERS = frozenset({Meter.TRAIN_COMPUTE_US, Meter.PREDICT_COMPUTE_US, Meter.ENV_COMPUTE_US})


class UsageEvent(TenantOwned, AppendOnly):
    """One metered quantity. (tenant, source, event_id, meter) is unique for ever."""

    job_id = models.UUIDField(default=NO_JOB)
    project_id = models.UUIDField(null=True)  # of the job
    key_id = models.UUIDField(null=True)  # the API key that submitted the job
    source = models.CharField(max_length=100)  # journal id of the runtime, or "storage"
    event_id = models.CharField(max_length=200)
    meter = models.CharField(max_length=40, choices=Meter.choices)
    quantity = models.PositiveBigIntegerField()
    billable = models.BooleanField(default=True)
    reason = models.CharField(max_length=100, blank=True)
    occurred_at = models.DateTimeField()
    received_at = models.DateTimeField(auto_now_add=True)
    content_sha256 = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "source", "event_id", "meter"], name="usage_once"),
        ]
        indexes = [models.Index(fields=["tenant", "job_id"], name="usage_by_job")]

    def __str__(self) -> str:
        return f"{self.quantity} {self.meter}"


class RatedUsage(TenantOwned, AppendOnly):
    """The money of one usage event, at the price valid when it happened. 12 decimals; rounded only on an invoice.

    ``period`` is the first day of the month whose invoice it is on: the month it happened in, or, if that was closed
    when it came, the one open then.
    """

    event = models.OneToOneField(UsageEvent, on_delete=models.PROTECT, related_name="rated")
    job_id = models.UUIDField(default=NO_JOB)
    price = models.ForeignKey("billing.PriceVersion", on_delete=models.PROTECT, related_name="+")
    factor_permille = models.PositiveIntegerField(default=1000)  # of the job's priority
    amount = MoneyField()
    currency = models.CharField(max_length=3)
    period = models.DateField()

    class Meta:
        indexes = [models.Index(fields=["tenant", "period"], name="rated_by_period")]


class UsageRollup(TenantOwned):
    """Running sums of rated usage, written with it: what every page, cap and invoice adds up.

    One row per (tenant, invoice period, UTC day it happened, job, meter, why it is free). ``reconcile_billing``
    compares them with the events.
    """

    period = models.DateField()
    day = models.DateField()
    job_id = models.UUIDField(default=NO_JOB)
    project_id = models.UUIDField(null=True)
    key_id = models.UUIDField(null=True)
    meter = models.CharField(max_length=40, choices=Meter.choices)
    reason = models.CharField(max_length=100, blank=True)  # "": billed
    quantity = models.PositiveBigIntegerField()
    amount = MoneyField()
    currency = models.CharField(max_length=3)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "period", "day", "job_id", "meter", "reason"], name="one_rollup_per_day"
            )
        ]
        indexes = [
            models.Index(fields=["tenant", "job_id"], name="rollup_by_job"),
            models.Index(fields=["tenant", "day"], name="rollup_by_day"),
            models.Index(fields=["tenant", "key_id"], name="rollup_by_key"),
        ]


class MeterTotal(TenantOwned):
    """Billable units of a meter in a calendar month so far: where graduated and package prices go on counting."""

    meter = models.CharField(max_length=40, choices=Meter.choices)
    month = models.DateField()
    quantity = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "meter", "month"], name="one_total_per_month")]
