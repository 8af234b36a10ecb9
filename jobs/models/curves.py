"""What a job measured, kept decimated beside its points: a page of a million points reads a few thousand rows."""

from django.db import models

from tenants.scope import TenantOwned


class MetricCurve(TenantOwned):  # type: ignore[django-manager-missing]
    """One series of one attempt: how much there is of it. Written with its points, in the same transaction."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="curves")
    attempt = models.PositiveIntegerField()
    series = models.CharField(max_length=100)
    points = models.PositiveIntegerField()
    first_step = models.PositiveIntegerField()
    last_step = models.PositiveIntegerField()
    # Points at smaller steps are in every bucket that ends below it; the others are read one by one.
    bucketed_to = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "series"], name="one_curve_per_series")]


class MetricBucket(TenantOwned):
    """Points at steps from ``number * width`` to ``(number + 1) * width - 1`` of one curve, see ``jobs.buckets``."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    curve = models.ForeignKey(MetricCurve, on_delete=models.CASCADE, related_name="buckets", db_index=False)
    width = models.PositiveIntegerField()  # steps
    number = models.PositiveIntegerField()
    points = models.PositiveIntegerField()
    last_step = models.PositiveIntegerField()
    last_at = models.DateTimeField()
    last = models.FloatField(null=True)  # null where the last point is not finite
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    special = models.CharField(max_length=5, blank=True)  # "nan" | "inf" | "-inf", if any point is that

    class Meta:
        constraints = [models.UniqueConstraint(fields=["curve", "width", "number"], name="one_bucket_per_number")]
