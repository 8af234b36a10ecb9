"""The job list."""

from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.facts import KIND_WORDS, subject_of
from frontend.successes import latest_successes
from frontend.views.page import frame, page
from jobs.selectors.jobs import job_list
from jobs.selectors.line import queue_places
from jobs.states import LIVE, JobState
from tenants.billing.usage.selectors import job_costs
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.selectors import project_list

PER_PAGE = 50
PRIORITIES = tuple(map(str, range(9, -1, -1)))


@require_safe
@page(Permission.JOBS_READ)
def job_table(request: PageRequest) -> HttpResponse:
    """Newest first; the filters live in the query string."""
    query = request.GET.get("q", "").replace("\0", "").strip()  # PostgreSQL takes no NUL
    state, kind = request.GET.get("state", ""), request.GET.get("kind", "")
    projects = list(project_list(request.actor).order_by("slug"))
    project = request.GET.get("project", "") if request.GET.get("project") in {row.slug for row in projects} else ""
    priority = request.GET.get("priority", "") if request.GET.get("priority") in PRIORITIES else ""
    jobs = job_list(
        request.tenant,
        query=query,
        state=state if state in set(JobState) else "",
        kind=kind if kind in KIND_WORDS else "",
        project=project,
        priority=int(priority) if priority else None,
    )
    if state == "live":
        jobs = jobs.filter(state__in=LIVE)
    shown = Paginator(jobs, PER_PAGE).get_page(request.GET.get("page"))
    costs = job_costs(request.tenant, [job.pk for job in shown])
    successes = latest_successes(request.tenant, list(shown))
    places = queue_places(request.tenant.pk, list(shown))
    rows = [
        {
            "job": job,
            "cost": costs[job.pk],
            "success": successes.get(job.pk),
            "subject": subject_of(job),
            "place": places.get(job.pk),
        }
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
        "projects": projects,
        "project": project,
        "priorities": PRIORITIES,
        "priority": priority,
        "filters": urlencode({"q": query, "state": state, "kind": kind, "project": project, "priority": priority}),
        "now": timezone.now(),
    }
    return render(request, "console/jobs.html", context)
