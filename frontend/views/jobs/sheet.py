"""The filtered list as CSV: every job that matches, newest first, streamed."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.views.jobs.asked import asked_of
from frontend.views.jobs.rows import Row, rows_of
from frontend.views.page import page
from jobs.selectors.filters import JobFilter
from jobs.selectors.jobs import job_list
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.selectors import member_list, project_list
from tenants.tables import csv_answer

COLUMNS = (
    *("number", "id", "name", "kind", "state", "reason", "message", "project", "priority", "base_model", "head"),
    *("subject", "subject_detail", "started_from", "tags", "note", "submitted_by", "submitted_at", "started_at"),
    *("ended_at", "archived_at", "duration_s", "step", "total_steps", "metric", "value", "cost", "currency"),
)
PER_READ = 1000


@require_safe
@page(Permission.JOBS_READ)
def jobs_csv(request: PageRequest) -> HttpResponseBase:
    """The filters of the page; its order, columns and pages do not matter here.

    A file cannot say that a filter was not understood: the page can, so such an address leads there.
    """
    asked = asked_of(
        request.GET,
        projects=set(project_list(request.actor).values_list("slug", flat=True)),
        owners=set(member_list(request.actor).values_list("user_id", flat=True)),
    )
    if asked.ignored:
        return redirect(f"{reverse('frontend:jobs')}?{request.GET.urlencode()}")
    return csv_answer(COLUMNS, _lines(request.tenant, asked.wanted), name=f"jobs-of-{request.tenant.slug}")


def _lines(tenant: Tenant, wanted: JobFilter) -> Iterator[tuple[Any, ...]]:
    """By number, so many at a time: jobs that are submitted meanwhile shift nothing."""
    below: int | None = None
    now = timezone.now()
    while True:
        found = job_list(tenant, wanted).order_by("-number").values_list("pk", "number")
        rows = list((found if below is None else found.filter(number__lt=below))[:PER_READ])
        keys: list[UUID] = [key for key, _ in rows]
        yield from map(_line, rows_of(tenant, keys, now))
        if len(rows) < PER_READ:
            return
        below = rows[-1][1]


def _line(row: Row) -> tuple[Any, ...]:
    job = row.job
    return (
        *(job.number, job.pk, job.name, job.kind, job.state, job.reason, job.message, job.project.slug, job.priority),
        *(job.base_model, job.head, *row.subject, job.policy.job.name if job.policy else None, " ".join(row.tags)),
        *(job.note, job.created_by.email if job.created_by else None),
        *(moment and moment.isoformat() for moment in (job.created_at, job.started_at, job.finished_at)),
        job.archived_at and job.archived_at.isoformat(),
        row.age_s if job.started_at else None,
        *(job.step, job.total_steps),
        *((row.result.metric, row.result.value) if row.result else (None, None)),
        *(f"{row.cost.amount:f}", row.cost.currency),
    )
