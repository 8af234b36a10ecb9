"""What a tenant allows itself: monthly budgets with alerts, soft or hard."""

import uuid

from django.db import models

from tenants.billing.money import MoneyField, plain
from tenants.scope import TenantOwned

ALERT_PERCENTS = (50, 80, 100)


class Budget(TenantOwned):  # type: ignore[django-manager-missing]
    """Money per calendar month (UTC) of the tenant, or of one project. A hard one stops jobs when it is used up."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey("tenants.Project", on_delete=models.PROTECT, null=True, related_name="budgets")
    amount = MoneyField()
    hard = models.BooleanField(default=False)
    version = models.PositiveIntegerField(default=1)  # for ETag
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "project"], condition=models.Q(ended_at=None), name="one_budget_per_project"
            ),
            models.UniqueConstraint(
                fields=["tenant"], condition=models.Q(ended_at=None, project=None), name="one_budget_of_the_tenant"
            ),
            models.CheckConstraint(condition=models.Q(amount__gt=0), name="budget_positive"),
        ]

    def __str__(self) -> str:
        return f"{plain(self.amount)} a month, {'hard' if self.hard else 'soft'}"


class BudgetAlert(TenantOwned):
    """A threshold that was passed: once per budget, month and percent."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="alerts")
    month = models.DateField()
    percent = models.PositiveSmallIntegerField()
    spent = MoneyField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["budget", "month", "percent"], name="one_alert_per_threshold")]
