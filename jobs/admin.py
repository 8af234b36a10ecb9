"""Operators' view of jobs: what was asked, what became of it, what is under way. Nothing is edited here."""

from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.forms import BaseInlineFormSet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from gpu_runtime.protocol.services import SERVICES_OF_KIND
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
from jobs.services.books import difference_see
from jobs.services.cancel import job_cancel
from jobs.services.requeue import job_requeue
from tenants.admin_base import OfTenant, ReadOnly, RowsInside
from tenants.admin_confirm import confirm_then
from tenants.billing.models import ReconciliationDifference

ROWS_SHOWN = 20  # of each list on a job's page


class _Newest(BaseInlineFormSet):  # type: ignore[type-arg]
    """The newest rows of a job only: an evaluation may have thousands of films."""

    def get_queryset(self) -> QuerySet[Any]:
        if not hasattr(self, "_newest"):
            self._newest = super().get_queryset()[:ROWS_SHOWN]
        return self._newest


class AttemptRows(RowsInside):
    model = JobAttempt
    fields = ["number", "state", "reason", "journal_id", "started_at", "finished_at"]


class _NewestRows(RowsInside):
    """The newest few; the job's page links to the list of all of them."""

    formset = _Newest
    ordering = ["-created_at", "-pk"]


class ArtifactRows(_NewestRows):
    model = Artifact
    verbose_name_plural = f"artifacts, newest {ROWS_SHOWN}"
    fields = ["kind", "name", "attempt", "policy_version", "size_bytes", "sha256", "created_at"]


class PolicyVersionRows(_NewestRows):
    model = PolicyVersion
    verbose_name_plural = f"policy versions, newest {ROWS_SHOWN}"
    fields = ["attempt", "version", "step", "checkpoint", "created_at"]


class OfKind(admin.SimpleListFilter):
    """The kinds there are, without asking every row for its own."""

    title = parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in SERVICES_OF_KIND]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Job]") -> "QuerySet[Job]":
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_display = [
        "name",
        "tenant",
        "project",
        "kind",
        "state",
        "reason",
        "step",
        "total_steps",
        "created_at",
    ]
    list_filter = ["state", OfKind, OfTenant]
    list_select_related = ["tenant", "project"]
    search_fields = ["=id", "name", "tenant__name"]
    ordering = ["-created_at", "-pk"]
    actions = ["cancel", "requeue"]
    readonly_fields = ["all_artifacts", "all_policy_versions"]
    inlines = [AttemptRows, ArtifactRows, PolicyVersionRows]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without the specification, which is long: a job's own page asks for it."""
        return super().get_queryset(request).defer("spec")

    def has_act_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("jobs.change_job"))

    @admin.action(description="Cancel", permissions=["act"])
    def cancel(self, request: HttpRequest, chosen: "QuerySet[Job]") -> HttpResponse | None:
        return confirm_then(
            self,
            request,
            chosen.select_related("tenant"),
            action="cancel",
            question="Stop these? What they have not published yet is lost.",
            button="Cancel the jobs",
            act=lambda by, job, why: job_cancel(tenant=job.tenant, job_id=job.pk, by=by, why=why),
            label=_named,
        )

    @admin.action(description="Re-queue", permissions=["act"])
    def requeue(self, request: HttpRequest, chosen: "QuerySet[Job]") -> HttpResponse | None:
        return confirm_then(
            self,
            request,
            chosen.select_related("tenant"),
            action="requeue",
            question="Run these again, each as a new attempt that its tenant pays for?",
            button="Run them again",
            act=lambda by, job, why: job_requeue(by=by, job=job, reason=why),
            label=_named,
        )

    @admin.display(description="Artifacts")
    def all_artifacts(self, job: Job) -> str:
        return _list_of(job, Artifact)

    @admin.display(description="Policy versions")
    def all_policy_versions(self, job: Job) -> str:
        return _list_of(job, PolicyVersion)


def _named(job: Job) -> str:
    return f"{job.name} of {job.tenant.name}, {job.state}"


def _list_of(job: Job, model: type[Model]) -> str:
    """How many rows of a model a job has, as a link to their own list."""
    count = model._default_manager.filter(job=job).count()
    url = reverse(f"admin:jobs_{model._meta.model_name}_changelist", query={"job__id__exact": job.pk})
    return format_html('<a href="{}">All {}</a>', url, count)


@admin.register(Artifact)
class ArtifactAdmin(ReadOnly):
    list_display = ["name", "kind", "tenant", "job_id", "attempt", "policy_version", "size_bytes", "created_at"]
    list_filter = ["kind", OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["=id", "=job__id", "name"]
    ordering = ["-created_at", "-pk"]


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnly):
    list_display = ["job_id", "tenant", "attempt", "version", "step", "checkpoint", "created_at"]
    list_filter = [OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["=id", "=job__id"]


@admin.register(JobEvent)
class JobEventAdmin(ReadOnly):
    list_display = ["job_id", "tenant", "seq", "attempt", "type", "data", "occurred_at"]
    list_filter = ["type", OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["=job__id"]
    ordering = ["-pk"]


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
    list_filter = ["state", OfTenant]
    list_select_related = ["tenant", "artifact"]
    search_fields = ["=artifact__id", "=artifact__job__id", "tenant__name"]


@admin.register(ReconciliationDifference)
class ReconciliationDifferenceAdmin(ReadOnly):
    list_display = ["run_at", "check_name", "tenant", "subject", "expected", "found", "seen_at", "seen_by"]
    list_filter = [("seen_at", admin.EmptyFieldListFilter), "check_name"]
    list_select_related = ["run", "tenant", "seen_by"]
    search_fields = ["subject", "tenant__name"]
    ordering = ["-pk"]

    actions = ["see"]

    def has_act_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.change_reconciliationdifference"))

    @admin.action(description="Mark as seen", permissions=["act"])
    def see(self, request: HttpRequest, chosen: "QuerySet[ReconciliationDifference]") -> HttpResponse | None:
        return confirm_then(
            self,
            request,
            chosen,
            action="see",
            question="Has somebody looked at these? Their alert ends. Say what it was.",
            button="Mark as seen",
            act=lambda by, row, why: difference_see(by=by, difference=row, reason=why),
            label=lambda row: f"{row.check_name}, {row.subject}: expected {row.expected}, found {row.found}",
        )

    @admin.display(description="Run", ordering="run__started_at")
    def run_at(self, row: ReconciliationDifference) -> Any:
        return row.run.started_at
