"""Operators' lists of datasets and uploads: read only."""

from django.contrib import admin

from tenants.admin_base import OfTenant, ReadOnly
from tenants.datasets.models import Dataset, DatasetVersion, Upload


@admin.register(Dataset)
class DatasetAdmin(ReadOnly):
    list_display = ["name", "tenant", "keep_days", "created_by", "created_at"]
    list_filter = [OfTenant]
    list_select_related = ["tenant", "created_by"]
    search_fields = ["name", "tenant__name", "=id"]
    ordering = ["-created_at"]


@admin.register(DatasetVersion)
class DatasetVersionAdmin(ReadOnly):
    list_display = ["dataset", "number", "tenant", "state", "reason", "size_bytes", "created_at", "sealed_at"]
    list_filter = ["state", OfTenant]
    list_select_related = ["tenant", "dataset"]
    search_fields = ["dataset__name", "tenant__name", "=id"]
    ordering = ["-created_at"]


@admin.register(Upload)
class UploadAdmin(ReadOnly):
    list_display = ["name", "tenant", "state", "received_bytes", "size_bytes", "reason", "created_by", "touched_at"]
    list_filter = ["state", OfTenant]
    list_select_related = ["tenant", "created_by"]
    search_fields = ["name", "tenant__name", "=id"]
    ordering = ["-created_at"]
