"""The job list and one job."""

from typing import Any
from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from frontend.charts import SFT_CHARTS
from frontend.views.page import frame, page
from jobs.models import Job
from jobs.selectors.jobs import artifact_list, compute_share, job_get, job_list, policy_version_list
from jobs.selectors.runtime import runtime_report
from jobs.selectors.stream import latest_events
from jobs.services.cancel import job_cancel
from jobs.states import LIVE, TERMINAL, JobState
from tenants.billing.selectors import job_cost, job_costs
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest

PER_PAGE = 50
EVENTS_SHOWN = 100


@require_safe
@page(Permission.JOBS_READ)
def job_table(request: PageRequest) -> HttpResponse:
    """Newest first; the filters live in the query string."""
    query = request.GET.get("q", "").replace("\0", "").strip()  # PostgreSQL takes no NUL
    state = request.GET.get("state", "")
    jobs = job_list(request.tenant, query=query, state=state if state in set(JobState) else "")
    if state == "live":
        jobs = jobs.filter(state__in=LIVE)
    shown = Paginator(jobs, PER_PAGE).get_page(request.GET.get("page"))
    costs = job_costs(request.tenant, [job.pk for job in shown])
    rows = [{"job": job, "cost": costs[job.pk]} for job in shown]
    context = frame(request, "jobs") | {
        "rows": rows,
        "shown": shown,
        "states": [JobState(value) for value in JobState],
        "query": query,
        "state": state,
        "now": timezone.now(),
    }
    return render(request, "console/jobs.html", context)


@require_safe
@page(Permission.JOBS_READ)
def job_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """State, charts, cost, events and downloads of one job; script keeps them live."""
    job = job_get(request.tenant, job_id)
    may_cancel = request.actor.may(Permission.JOBS_WRITE) and job.state not in TERMINAL
    context = frame(request, "jobs") | {
        "job": job,
        "cost": job_cost(request.tenant, job.pk),
        "share": compute_share(request.tenant, job),
        "charts": SFT_CHARTS,
        "events": latest_events(request.tenant, job.pk, limit=EVENTS_SHOWN),
        "artifacts": artifact_list(request.tenant, job.pk),
        "policies": policy_version_list(request.tenant, job.pk)[:10],
        "may_cancel": may_cancel and job.state != JobState.CANCELLING,
        "now": timezone.now(),
        "runtime": None if job.state in TERMINAL else runtime_report(),
        "live": _live_data(job),
    }
    return render(request, "console/job.html", context)


@require_POST
@page(Permission.JOBS_WRITE)
def job_cancel_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Ask the job to stop, then show it: a job that has just ended is shown as it ended."""
    try:
        job_cancel(tenant=request.tenant, job_id=job_id)
    except ApplicationError as error:
        if error.status != 409:
            raise
    return redirect("frontend:job", job_id=job_id)


def _live_data(job: Job) -> dict[str, Any]:
    """What the page's script starts from."""
    return {
        "id": str(job.pk),
        "state": job.state,
        "seq": job.last_seq,
        "startedAt": job.started_at.isoformat() if job.started_at else None,
        "finishedAt": job.finished_at.isoformat() if job.finished_at else None,
        "now": timezone.now().isoformat(),
        "charts": [chart.as_json() for chart in SFT_CHARTS],
    }
