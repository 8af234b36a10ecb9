"""What can be done with a job from its page. Everything here is a POST that leads back to a page."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from frontend.views.page import page
from jobs.services.cancel import job_cancel
from jobs.services.import_retry import import_retry
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
