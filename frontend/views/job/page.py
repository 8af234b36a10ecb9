"""One job's page: what is on it whichever tab is open, and the parts of it that are read anew while it lives."""

import hashlib
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.facts import job_facts, subject_of
from frontend.lineage import made_by
from frontend.markdown import markdown
from frontend.spending import job_money
from frontend.state_line import Entry, state_line
from frontend.views.job.tabs import tab_counts, tab_of
from frontend.views.page import frame, page
from jobs.models import Job
from jobs.selectors.jobs import job_get
from jobs.selectors.line import queue_places
from jobs.selectors.pace import recent_paces, state_changes
from jobs.selectors.runtime import runtime_report
from jobs.selectors.shares import compute_share
from jobs.selectors.stream import notable_events
from jobs.states import TERMINAL, JobState
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.scope import tenant_scope

EVENTS_SHOWN = 6  # beside the tabs; all of them have a tab


@require_safe
@page(Permission.JOBS_READ)
def job_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Everything about one job; only what the open tab shows is read. Script keeps it live."""
    return show_job(request, job_get(request.tenant, job_id))


def show_job(request: PageRequest, job: Job, more: dict[str, Any] | None = None, *, status: int = 200) -> HttpResponse:
    """The page of a job, with ``more`` in its context: what was refused, for example."""
    tab = tab_of(request, job)
    context = frame(request, "jobs") | now_context(request, job) | about_context(request, job)
    context |= {
        "tab": tab,
        "tabs": tab_counts(request.tenant, job),
        "events": notable_events(request.tenant, job.pk, limit=EVENTS_SHOWN),
        "live": live_data(job, tab.name),
    }
    return render(request, "console/job/page.html", context | tab.context(request, job) | (more or {}), status=status)


@require_safe
@page(Permission.JOBS_READ)
def job_now(request: PageRequest, job_id: UUID) -> HttpResponse:
    """State, actions and cost as they are now, for the script that keeps them fresh."""
    job = job_get(request.tenant, job_id)
    tabs = {"tab": tab_of(request, job), "tabs": tab_counts(request.tenant, job)}
    return render(request, "console/job/now.html", now_context(request, job) | tabs)


def now_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """What changes by itself while a job lives; a fixed number of queries."""
    now, tenant = timezone.now(), request.tenant
    pace = recent_paces(tenant, [job], now=now).get(job.pk) if job.state == JobState.RUNNING else None
    entries = [Entry(state=state, at=at) for state, at in state_changes(tenant, job.pk)]
    may_write, ended = request.actor.may(Permission.JOBS_WRITE), job.state in TERMINAL
    return {
        "job": job,
        "now": now,
        "line": state_line(job, entries, pace, now=now),
        "money": job_money(tenant, job, pace, now=now),
        "share": compute_share(tenant, job),
        "place": queue_places(job.tenant_id, [job]).get(job.pk),
        "runtime": None if ended else runtime_report(),
        "may_write": may_write,
        "may_cancel": may_write and not ended and job.state != JobState.CANCELLING,
        "may_retry_job": may_write and ended,
    }


def about_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """What people said of the job, what it is about, and what came of it."""
    with tenant_scope(request.tenant):
        parent = job.cloned_from
    return {
        "subject": subject_of(job),
        "facts": job_facts(job),
        "tags": tags_of(request.tenant, job),
        "parent": parent,
        "note": note_of(job),
        "draft": None,
        "made": made_by(request.tenant, job),
        "may_retry": request.actor.may(Permission.DATASETS_WRITE),
    }


def note_of(job: Job) -> dict[str, Any]:
    """For console/job/note.html. ``seal`` tells whether the note itself is what somebody began to edit."""
    return {"text": job.note, "html": markdown(job.note), "described": job.described, "seal": seal(job.note)}


def seal(note: str) -> str:
    return hashlib.sha256(note.encode()).hexdigest()


def tags_of(tenant: Tenant, job: Job) -> list[str]:
    with tenant_scope(tenant):
        return sorted(job.tags.values_list("name", flat=True))


def live_data(job: Job, tab: str) -> dict[str, Any]:
    """What the page's script starts from."""
    return {
        "id": str(job.pk),
        "tab": tab,
        "state": job.state,
        "attempt": job.attempt,
        "seq": job.last_seq,
        "now": timezone.now().isoformat(),
    }
