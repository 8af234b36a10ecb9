"""Several jobs on one page."""

from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.charts.overlay import overlay_axes, overlay_charts
from frontend.comparison import COMPARED_MAX, Compared, compared, verdict
from frontend.parameters import parameters
from frontend.templatetags.console import run_slot
from frontend.views.page import answer, frame, page
from jobs.models import Job
from jobs.selectors.comparison import COMPARISON_COLUMNS, comparison_rows, jobs_get
from jobs.selectors.jobs import job_list
from jobs.states import TERMINAL
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.tables import csv_answer

OFFERED = 50  # the newest jobs, to add one


@require_safe
@page(Permission.JOBS_READ)
def compare_page(request: PageRequest) -> HttpResponse:
    """The first ten of the jobs that the address names; a name that is no job of this tenant is a missing page."""
    asked = _asked(request)
    job_ids = asked[:COMPARED_MAX]
    rows = compared(request.tenant, job_ids)
    jobs = [row.job for row in rows]
    live, settings = _live_data(rows), parameters([job.spec for job in jobs])
    context = frame(request, "jobs") | {
        "rows": rows,
        "asked": len(asked),
        "most": COMPARED_MAX,
        "verdict": verdict(rows),
        "parameters": settings,
        "differing": sum(one.differs for one in settings),
        "charts": live["charts"],
        "axes": live["axes"],
        "now": timezone.now(),
        "offered": job_list(request.tenant).exclude(pk__in=job_ids)[:OFFERED],
        "live": live,
    }
    return answer(request, "console/compare/page.html", "console/compare/result.html", context)


@require_safe
@page(Permission.JOBS_READ)
def compare_csv(request: PageRequest) -> HttpResponseBase:
    """Every point of the same jobs, undecimated."""
    jobs = jobs_get(request.tenant, _asked(request)[:COMPARED_MAX])
    return csv_answer(COMPARISON_COLUMNS, comparison_rows(jobs), name="comparison")


def _asked(request: PageRequest) -> list[UUID]:
    """Each job once; what is no id cannot be a job either and is asked for as one that does not exist."""
    return list(dict.fromkeys(_uuid(text) for text in request.GET.getlist("job")))


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


def _live_data(rows: list[Compared]) -> dict[str, object]:
    """What the page's script starts from."""
    jobs = [row.job for row in rows]
    return {
        "jobs": [_line(row.job, is_dashed=row.repeats) for row in rows],
        "charts": overlay_charts(jobs),
        "axes": overlay_axes(jobs),
    }


def _line(job: Job, *, is_dashed: bool) -> dict[str, object]:
    return {
        "id": str(job.pk),
        "name": job.name,
        "number": job.number,
        "slot": run_slot(job.number),
        "dashed": is_dashed,
        "startedAt": (job.started_at or job.created_at).timestamp(),
        "live": job.state not in TERMINAL,
    }
