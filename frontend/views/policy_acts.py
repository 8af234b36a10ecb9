"""What can be done with a policy from its page: delete its file, and say how long it is kept."""

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from frontend.refusals import refusal_of
from frontend.views.page import page
from frontend.views.policies import show_policy
from jobs.selectors.policies import policy_get
from jobs.services.retention import ArtifactChange, artifact_delete, artifact_keep
from tenants.bodies import parse_body
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_POST
@page(Permission.JOBS_WRITE)
def policy_delete(request: PageRequest, policy_id: UUID) -> HttpResponse:
    """Delete the file and go back to where it was asked; refused while a job that has not ended starts from it."""
    policy = policy_get(request.tenant, policy_id)
    try:
        artifact_delete(actor=request.actor, artifact_id=policy.pk)
    except ApplicationError as error:
        return show_policy(request, policy, refusal=refusal_of(error), status=error.status)
    messages.success(request, f"{policy.name} was deleted.")
    return _back(request, policy_id)


@require_POST
@page(Permission.JOBS_WRITE)
def policy_keep(request: PageRequest, policy_id: UUID) -> HttpResponse:
    """Keep it for so many days from now; an empty field: until somebody deletes it."""
    policy = policy_get(request.tenant, policy_id)
    said = request.POST.get("keep_days", "").strip()
    try:
        wanted = parse_body(ArtifactChange, {"keep_days": int(said) if said.isdecimal() else said or None})
        artifact_keep(actor=request.actor, artifact_id=policy.pk, keep_days=wanted.keep_days)
    except ApplicationError as error:
        return show_policy(request, policy, refusal=refusal_of(error), keep_days=said, status=error.status)
    messages.success(request, "Saved how long it is kept.")
    return _back(request, policy_id)


def _back(request: PageRequest, policy_id: UUID) -> HttpResponse:
    """To the page of this console that the form names, else to the policy."""
    target = request.POST.get("next", "")
    if target.startswith("/") and url_has_allowed_host_and_scheme(target, allowed_hosts=None):
        return redirect(target)
    return redirect("frontend:policy", policy_id=policy_id)
