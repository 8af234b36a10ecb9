"""Operators' view of datasets: read only."""

from django.contrib import admin

from tenants.admin import ReadOnly
from tenants.datasets.models import DatasetVersion


@admin.register(DatasetVersion)
class DatasetVersionAdmin(ReadOnly):
    list_display = ["dataset", "number", "tenant", "state", "reason", "size_bytes", "created_at"]
    list_filter = ["state"]
    list_select_related = ["tenant", "dataset"]
    search_fields = ["dataset__name", "tenant__name", "=id"]
