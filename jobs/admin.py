"""Operators' view of jobs: what was asked, what became of it, what is under way. Nothing is edited here."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs.models import (
    Artifact,
    DatasetImport,
    DeviceSpan,
    Job,
    JobAttempt,
    JobEvent,
    OutboxMessage,
    PolicyVersion,
    RuntimeCursor,
    RuntimeSnapshot,
)
from tenants.admin import ReadOnly


class _Rows(admin.TabularInline):
    """Rows of a job, shown only."""

    extra = 0
    can_delete = False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class AttemptRows(_Rows):
    model = JobAttempt
    fields = ["number", "state", "reason", "journal_id", "started_at", "finished_at"]


class ArtifactRows(_Rows):
    model = Artifact
    fields = ["kind", "name", "attempt", "policy_version", "size_bytes", "sha256", "created_at"]


class PolicyVersionRows(_Rows):
    model = PolicyVersion
    fields = ["attempt", "version", "step", "checkpoint", "created_at"]


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_display = ["name", "tenant", "kind", "state", "reason", "attempt", "step", "total_steps", "created_at"]
    list_filter = ["state", "kind", "reason", "tenant"]
    list_select_related = ["tenant"]
    search_fields = ["id", "name", "tenant__name"]
    date_hierarchy = "created_at"
    inlines = [AttemptRows, ArtifactRows, PolicyVersionRows]


@admin.register(JobEvent)
class JobEventAdmin(ReadOnly):
    list_display = ["job_id", "tenant", "seq", "attempt", "type", "data", "occurred_at"]
    list_filter = ["type"]
    list_select_related = ["tenant"]
    search_fields = ["job__id"]


@admin.register(OutboxMessage)
class OutboxMessageAdmin(ReadOnly):
    list_display = ["topic", "key", "created_at", "sent_at"]
    list_filter = ["topic", ("sent_at", admin.EmptyFieldListFilter)]


@admin.register(DeviceSpan)
class DeviceSpanAdmin(ReadOnly):
    list_display = ["service", "started_at", "busy_us", "overhead_us", "group_size", "samples", "tokens", "shares"]
    list_filter = ["service", "journal_id"]
    search_fields = ["span_id"]


@admin.register(RuntimeCursor)
class RuntimeCursorAdmin(ReadOnly):
    list_display = ["journal_id", "last_seq", "updated_at"]


@admin.register(RuntimeSnapshot)
class RuntimeSnapshotAdmin(ReadOnly):
    list_display = ["journal_id", "seen_at"]


@admin.register(DatasetImport)
class DatasetImportAdmin(ReadOnly):
    list_display = ["artifact", "tenant", "state", "reason", "attempts", "claimed_until", "created_at"]
    list_filter = ["state", "tenant"]
    list_select_related = ["tenant", "artifact"]
    search_fields = ["=artifact__id", "=artifact__job__id", "tenant__name"]
