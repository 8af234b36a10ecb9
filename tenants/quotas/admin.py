"""Operators' lists of limits and of what is stored. A tenant's limit is set on the tenant's screen."""

from typing import Any

from django.contrib import admin
from django.forms import ModelForm
from django.http import HttpRequest

from tenants.admin_base import AsksWhy, OfTenant, ReadOnly
from tenants.models import User
from tenants.quotas.models import DefaultQuota, Quota, Resource, StorageAccount
from tenants.quotas.services import default_quota_set


@admin.register(Quota)
class QuotaAdmin(ReadOnly):
    list_display = [
        "tenant",
        "project",
        "resource",
        "limit",
        "expires_at",
        "reason",
        "created_by",
        "created_at",
        "ended_at",
    ]
    list_filter = ["resource", ("ended_at", admin.EmptyFieldListFilter), OfTenant]
    list_select_related = ["tenant", "project", "created_by"]
    search_fields = ["tenant__name", "tenant__slug", "reason"]
    ordering = ["-created_at"]


@admin.register(DefaultQuota)
class DefaultQuotaAdmin(AsksWhy):
    """What every tenant may use that has no limit of its own. No row for a resource: unlimited."""

    list_display = ["resource", "limit", "updated_at"]
    fields = ["resource", "limit", "updated_at"]
    readonly_fields = ["updated_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["resource", "updated_at"] if obj else ["updated_at"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: DefaultQuota, form: "ModelForm[Any]", change: bool) -> None:
        """By the service, which writes the act down."""
        assert isinstance(request.user, User)  # the site lets nobody else in
        row = default_quota_set(
            by=request.user, resource=Resource(obj.resource), limit=obj.limit, reason=form.cleaned_data["reason"]
        )
        obj.pk = row.pk


@admin.register(StorageAccount)
class StorageAccountAdmin(ReadOnly):
    list_display = ["tenant", "used_bytes", "reserved_bytes", "accrued_at"]
    list_filter = [OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["tenant__name", "tenant__slug"]
    ordering = ["-used_bytes"]
