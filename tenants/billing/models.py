"""How much: append-only usage, append-only prices, rated at ingest. Integers and Decimal, never float."""

from django.db import models

from tenants.billing.money import MoneyField
from tenants.scope import TenantOwned


class AppendOnly(models.Model):
    """A row that can be written once. Corrections are new rows."""

    class Meta:
        abstract = True

    def save(self, *args: object, **kwargs: object) -> None:
        if not self._state.adding:
            raise TypeError(f"{type(self).__name__} is append-only")
        super().save(*args, **kwargs)  # type: ignore[arg-type]

    def delete(self, *args: object, **kwargs: object) -> tuple[int, dict[str, int]]:
        raise TypeError(f"{type(self).__name__} is append-only")


class Meter(models.TextChoices):
    """What is counted; units in the comment."""

    TRAIN_SAMPLES = "train.samples"  # samples that went through an optimizer step
    TRAIN_COMPUTE_US = "train.compute_us"  # microseconds of measured device time, apportioned
    PREDICT_CHUNKS = "predict.chunks"  # action chunks a policy answered with
    PREDICT_COMPUTE_US = "predict.compute_us"  # microseconds of measured device time, apportioned
    ENV_STEPS = "env.steps"  # simulated steps
    ENV_COMPUTE_US = "env.compute_us"  # microseconds inside simulators, added up over processes


class PriceVersion(AppendOnly):
    """The price of ``per`` units of a meter from ``valid_from`` on, until a later version takes over."""

    meter = models.CharField(max_length=40, choices=Meter.choices)
    valid_from = models.DateTimeField()
    amount = MoneyField()
    per = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3, default="EUR")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["meter", "valid_from"], name="one_price_per_moment"),
            models.CheckConstraint(condition=models.Q(per__gte=1) & models.Q(amount__gte=0), name="price_sane"),
        ]

    def __str__(self) -> str:
        return f"{self.amount.normalize():f} {self.currency} per {self.per} {self.meter}"


class UsageEvent(TenantOwned, AppendOnly):
    """One metered quantity. (tenant, source, event_id, meter) is unique for ever."""

    job_id = models.UUIDField(db_index=True)
    source = models.CharField(max_length=100)  # journal id of the runtime
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

    def __str__(self) -> str:
        return f"{self.quantity} {self.meter}"


class RatedUsage(TenantOwned, AppendOnly):
    """The money of one usage event, at the price valid when it happened. 12 decimals; rounded only for display."""

    event = models.OneToOneField(UsageEvent, on_delete=models.PROTECT, related_name="rated")
    job_id = models.UUIDField(db_index=True)
    price = models.ForeignKey(PriceVersion, on_delete=models.PROTECT, related_name="+")
    amount = MoneyField()
    currency = models.CharField(max_length=3)
