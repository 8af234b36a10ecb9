"""The job list."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.facts import KIND_WORDS, subject_of
from frontend.successes import latest_successes
from frontend.views.page import frame, page
from jobs.selectors.jobs import job_list
from jobs.states import LIVE, JobState
from tenants.billing.selectors import job_costs
from tenants.permissions import Permission
from tenants.requests import PageRequest

PER_PAGE = 50


@require_safe
@page(Permission.JOBS_READ)
def job_table(request: PageRequest) -> HttpResponse:
    """Newest first; the filters live in the query string."""
    query = request.GET.get("q", "").replace("\0", "").strip()  # PostgreSQL takes no NUL
    state, kind = request.GET.get("state", ""), request.GET.get("kind", "")
    jobs = job_list(
        request.tenant,
        query=query,
        state=state if state in set(JobState) else "",
        kind=kind if kind in KIND_WORDS else "",
    )
    if state == "live":
        jobs = jobs.filter(state__in=LIVE)
    shown = Paginator(jobs, PER_PAGE).get_page(request.GET.get("page"))
    costs = job_costs(request.tenant, [job.pk for job in shown])
    successes = latest_successes(request.tenant, list(shown))
    rows = [
        {"job": job, "cost": costs[job.pk], "success": successes.get(job.pk), "subject": subject_of(job)}
        for job in shown
    ]
    context = frame(request, "jobs") | {
        "rows": rows,
        "shown": shown,
        "states": [JobState(value) for value in JobState],
        "kinds": KIND_WORDS,
        "query": query,
        "state": state,
        "kind": kind,
        "now": timezone.now(),
    }
    return render(request, "console/jobs.html", context)
