"""One job: state, charts, results, cost, events, and what it made."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.evaluations import Report, ReportUnreadable, read_report
from frontend.facts import job_facts, subject_of
from frontend.lineage import heirs_of, made_by
from frontend.successes import latest_successes
from frontend.templatetags.console import FREE_WORDS, METER_WORDS
from frontend.videos import OUTCOMES, Wish, gallery
from frontend.views.charts import charts_context
from frontend.views.page import frame, page
from jobs.models import Artifact, Job
from jobs.selectors.jobs import job_get
from jobs.selectors.line import queue_places
from jobs.selectors.runtime import runtime_report
from jobs.selectors.shares import compute_share
from jobs.selectors.stream import latest_events
from jobs.states import TERMINAL, JobState
from tenants.billing.usage.selectors import job_cost
from tenants.permissions import Permission
from tenants.requests import PageRequest

EVENTS_SHOWN = 100


@require_safe
@page(Permission.JOBS_READ)
def job_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Everything about one job; script keeps it live."""
    job = job_get(request.tenant, job_id)
    may_cancel = request.actor.may(Permission.JOBS_WRITE) and job.state not in TERMINAL
    context = frame(request, "jobs") | {
        "job": job,
        "subject": subject_of(job),
        "place": queue_places(job.tenant_id, [job]).get(job.pk),
        "cost": job_cost(request.tenant, job.pk),
        "share": compute_share(request.tenant, job),
        "events": latest_events(request.tenant, job.pk, limit=EVENTS_SHOWN),
        "may_cancel": may_cancel and job.state != JobState.CANCELLING,
        "now": timezone.now(),
        "runtime": None if job.state in TERMINAL else runtime_report(),
        "live": _live_data(job),
    }
    return render(
        request, "console/job/page.html", context | charts_context(request, job) | _origin_and_results(request, job)
    )


def _origin_and_results(request: PageRequest, job: Job) -> dict[str, Any]:
    """What it started from, and what it published so far; videos are many, so they have a list of their own."""
    made = made_by(request.tenant, job)
    told: dict[str, Any] = {
        "facts": job_facts(job),
        "made": made,
        "may_retry": request.actor.may(Permission.DATASETS_WRITE),
        "heirs": _with_success(request, heirs_of(request.tenant, job)),
    }
    if job.kind == "evaluation":
        told["gallery"] = gallery(request.tenant, job.pk, Wish.of(request.GET.dict()))
        told["outcomes"] = OUTCOMES
        told |= _report(made.artifacts)
    return told


def _with_success(request: PageRequest, jobs: list[Job]) -> list[dict[str, Any]]:
    known = latest_successes(request.tenant, jobs)
    return [{"job": job, "success": known.get(job.pk)} for job in jobs]


def _report(artifacts: list[Artifact]) -> dict[str, Any]:
    """The newest report as rows; a report nobody can read is said to be so, the rest of the page stays."""
    newest = next((artifact for artifact in artifacts if artifact.kind == "evaluation"), None)
    if newest is None:
        return {}
    try:
        report: Report | None = read_report(newest.manifest)
    except ReportUnreadable:
        report = None
    return {"report": report, "report_artifact": newest}


def _live_data(job: Job) -> dict[str, Any]:
    """What the page's script starts from."""
    return {
        "id": str(job.pk),
        "state": job.state,
        "seq": job.last_seq,
        "startedAt": job.started_at.isoformat() if job.started_at else None,
        "finishedAt": job.finished_at.isoformat() if job.finished_at else None,
        "now": timezone.now().isoformat(),
        "words": {"meters": METER_WORDS, "free": FREE_WORDS},
    }
