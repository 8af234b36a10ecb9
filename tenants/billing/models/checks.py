"""Results of `reconcile_billing`: what was compared, and every difference as a row."""

from django.db import models


class ReconciliationRun(models.Model):
    """One comparison of everything with everything. ``difference_count`` is 0 on healthy books."""

    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    by = models.CharField(max_length=254)  # "nightly", or the operator who asked
    figures = models.JSONField(default=dict)  # name of the check -> what was compared, in numbers
    difference_count = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"reconciliation of {self.started_at:%Y-%m-%d %H:%M} UTC"


class ReconciliationDifference(models.Model):
    """Two figures that must be equal and are not. Operators are alerted until they have looked at it."""

    run = models.ForeignKey(ReconciliationRun, on_delete=models.CASCADE, related_name="differences")
    check_name = models.CharField(max_length=60)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, null=True, related_name="+")
    subject = models.CharField(max_length=200)  # span, event, invoice, account …
    expected = models.CharField(max_length=60)
    found = models.CharField(max_length=60)
    seen_at = models.DateTimeField(null=True)
    seen_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
