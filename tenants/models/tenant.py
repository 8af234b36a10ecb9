"""Labs, and the projects inside them."""

import uuid

from django.db import models

from tenants.scope import TenantOwned

DEFAULT_CURRENCY = "EUR"
DEFAULT_PROJECT = "default"


class TenantState(models.TextChoices):
    """Whether a tenant may have work done."""

    ACTIVE = "active"
    PAUSED = "paused"  # by an operator: new jobs are refused, with the reason; running ones go on or are stopped


class Tenant(models.Model):
    """A lab: the boundary of isolation, quotas and bills."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    slug = models.SlugField(unique=True)
    weight = models.PositiveIntegerField(default=1, help_text="Share of a contended device, relative to others.")
    state = models.CharField(max_length=20, choices=TenantState.choices, default=TenantState.ACTIVE)
    paused_reason = models.CharField(max_length=500, blank=True)
    currency = models.CharField(max_length=3, default=DEFAULT_CURRENCY)  # of its plan, budgets and invoices
    jobs_numbered = models.PositiveIntegerField(default=0)  # number of its newest job
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(weight__gte=1), name="tenant_weight_positive")]

    def __str__(self) -> str:
        return self.name


class Project(TenantOwned):  # type: ignore[django-manager-missing]
    """What a tenant groups its jobs, keys and budgets by. Every tenant has one called "default"."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    slug = models.SlugField()
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(null=True)  # takes no new jobs and keys; its history stays

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "slug"], name="one_project_per_slug")]

    def __str__(self) -> str:
        return self.name
