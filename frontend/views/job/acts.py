"""What can be done with a job from its page: cancel, run again, have its recording taken in."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from frontend.refusals import refusal_of
from frontend.spending import Range
from frontend.views.job.page import show_job
from frontend.views.page import answer, frame, page
from jobs.models import Job
from jobs.selectors.jobs import job_get
from jobs.services.cancel import job_cancel
from jobs.services.estimates.forecast import job_forecast
from jobs.services.import_retry import import_retry
from jobs.services.retry import job_retry, retry_spec
from jobs.states import LIVE
from tenants.billing.usage.selectors import job_cost
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_POST
@page(Permission.JOBS_WRITE)
def job_cancel_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Ask the job to stop, then show it: a job that has just ended is shown as it ended."""
    try:
        job_cancel(tenant=request.tenant, job_id=job_id, by=request.actor)
    except ApplicationError as error:
        if error.status != 409:
            raise
    return redirect("frontend:job", job_id=job_id)


@require_POST
@page(Permission.DATASETS_WRITE)
def job_import_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Have the job's recording taken in again, then show the job."""
    try:
        import_retry(tenant=request.tenant, job_id=job_id, by=request.actor)
    except ApplicationError as error:
        if error.status != 409:
            raise
    return redirect("frontend:job", job_id=job_id)


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.JOBS_WRITE)
def job_retry_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """What running the job again would cost, as a dialog or a page; a POST does it and shows the new job."""
    job = job_get(request.tenant, job_id)
    if request.method != "POST":
        context = frame(request, "jobs") | {"job": job} | _retry_context(request, job)
        return answer(request, "console/job/retry_page.html", "console/job/retry.html", context)
    try:
        new = job_retry(tenant=request.tenant, job_id=job_id, by=request.actor)
    except ApplicationError as error:
        return show_job(request, job, {"refusal": refusal_of(error)}, status=error.status)
    messages.success(request, f"J-{new.number} is submitted")
    return redirect("frontend:job", job_id=new.pk)


def _retry_context(request: PageRequest, job: Job) -> dict[str, Any]:
    if job.state in LIVE:
        error = ApplicationError(code="job_not_ended", status=409, detail=f"The job is {job.state}.")
        return {"refusal": refusal_of(error)}
    try:
        forecast = job_forecast(tenant=request.tenant, actor=request.actor, spec=retry_spec(job))
    except ApplicationError as error:
        return {"refusal": refusal_of(error)}
    cost = forecast.estimate.cost
    return {
        "forecast": forecast,
        "likely": Range(low=cost.low, high=cost.high),
        "currency": forecast.estimate.currency,
        "spent": job_cost(request.tenant, job.pk),
    }
