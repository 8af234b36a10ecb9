"""Ask, show, submit: the page of a new job and the two parts that it reads anew while somebody types."""

from http import HTTPStatus

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST
from rest_framework.response import Response

from frontend.forms.snippets import finite
from frontend.views.new_job.context import beside, whole
from frontend.views.new_job.draft import Draft, draft_of_post, draft_of_query
from frontend.views.page import page, wants_part
from gpu_runtime.protocol.base import fingerprint
from jobs.services.submit import job_submit
from tenants.errors import ApplicationError
from tenants.idempotency import idempotent_act
from tenants.permissions import Permission
from tenants.requests import PageRequest

_PAGE = "console/new_job/page.html"


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.JOBS_WRITE)
def job_new(request: PageRequest) -> HttpResponse:
    """The form, filled in as the link asks; posted, it submits the job and leads to its page.

    Refused, it is shown again with everything that was typed, under the refusal's status.
    """
    if request.method != "POST":
        return render(request, _PAGE, whole(request, draft_of_query(request.tenant, request.GET.dict())))
    draft = draft_of_post(request.tenant, request.POST)
    try:
        job_id, number = _submitted(request, draft)
    except ApplicationError as error:
        return render(request, _PAGE, whole(request, draft, error=error), status=error.status)
    messages.success(request, f"J-{number} is submitted.")
    return redirect("frontend:job", job_id=job_id)


@require_POST
@page(Permission.JOBS_WRITE)
def job_new_fields(request: PageRequest) -> HttpResponse:
    """The fields for another kind, head, preset or row: what was typed stays. A whole page where htmx did not ask."""
    context = whole(request, draft_of_post(request.tenant, request.POST))
    return render(request, "console/new_job/swapped.html" if wants_part(request) else _PAGE, context)


@require_POST
@page(Permission.JOBS_WRITE)
def job_new_estimate(request: PageRequest) -> HttpResponse:
    """Cost, checks and the request as code, for what stands in the form now."""
    return render(
        request, "console/new_job/estimated.html", beside(request, draft_of_post(request.tenant, request.POST))
    )


def _submitted(request: PageRequest, draft: Draft) -> tuple[str, int]:
    """(id, number) of the job. Sent twice, the same form submits one; changed after a step back, another."""
    spec = draft.spec
    digest = fingerprint(finite(spec))

    def submit() -> Response:
        job = job_submit(tenant=request.tenant, actor=request.actor, spec=spec)
        return Response({"id": str(job.pk), "number": job.number}, status=HTTPStatus.ACCEPTED)

    answer = idempotent_act(
        submit,
        tenant=request.tenant,
        key=f"{draft.key}:{digest}",
        route=f"POST {reverse('frontend:job_new')}",
        body_sha256=digest,
    )
    return answer.data["id"], answer.data["number"]
