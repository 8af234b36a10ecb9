"""Operators' lists of prices and usage: rows of money can be read and exported, never edited or deleted."""

from django.contrib import admin

from tenants.admin_base import OfTenant, ReadOnly
from tenants.billing import admin_ledger  # noqa: F401  registers the other half: Django looks for `admin` only
from tenants.billing.models import (
    MeterTotal,
    PricePlan,
    PriceVersion,
    PriorityFactor,
    RatedUsage,
    TenantPlan,
    UsageEvent,
    UsageRollup,
)


@admin.register(PricePlan)
class PricePlanAdmin(ReadOnly):
    list_display = ["code", "name", "currency", "version", "created_at"]
    search_fields = ["code", "name"]
    ordering = ["code"]


@admin.register(PriceVersion)
class PriceVersionAdmin(ReadOnly):
    list_display = ["plan", "meter", "shape", "amount", "per", "currency", "valid_from", "created_by", "created_at"]
    list_filter = ["meter", "plan"]
    list_select_related = ["plan", "created_by"]
    ordering = ["plan__code", "meter", "-valid_from"]


@admin.register(PriorityFactor)
class PriorityFactorAdmin(ReadOnly):
    list_display = ["plan", "priority", "permille", "valid_from", "created_by", "created_at"]
    list_filter = ["plan", "priority"]
    list_select_related = ["plan", "created_by"]
    ordering = ["plan__code", "priority", "-valid_from"]


@admin.register(TenantPlan)
class TenantPlanAdmin(ReadOnly):
    list_display = ["tenant", "plan", "valid_from", "created_by", "created_at"]
    list_filter = ["plan", OfTenant]
    list_select_related = ["tenant", "plan", "created_by"]
    search_fields = ["tenant__name", "tenant__slug"]
    ordering = ["-valid_from"]


@admin.register(UsageEvent)
class UsageEventAdmin(ReadOnly):
    list_display = ["occurred_at", "tenant", "job_id", "meter", "quantity", "billable", "reason", "source", "event_id"]
    list_filter = ["meter", "billable", OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["=job_id", "=event_id"]
    ordering = ["-pk"]


@admin.register(RatedUsage)
class RatedUsageAdmin(ReadOnly):
    list_display = ["event", "tenant", "job_id", "amount", "currency", "price", "factor_permille", "period"]
    list_filter = [OfTenant]
    list_select_related = ["tenant", "event", "price"]
    search_fields = ["=job_id"]
    ordering = ["-pk"]


@admin.register(UsageRollup)
class UsageRollupAdmin(ReadOnly):
    list_display = ["day", "period", "tenant", "job_id", "meter", "reason", "quantity", "amount", "currency"]
    list_filter = ["meter", OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["=job_id", "=project_id", "=key_id"]
    ordering = ["-pk"]


@admin.register(MeterTotal)
class MeterTotalAdmin(ReadOnly):
    list_display = ["month", "tenant", "meter", "quantity"]
    list_filter = ["meter", OfTenant]
    list_select_related = ["tenant"]
    ordering = ["-pk"]
