"""Name, notes and tags of a job, edited in place: nobody overwrites what they have not seen."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from frontend.markdown import markdown
from frontend.refusals import refusal_of
from frontend.views.job.page import note_of, seal, show_job, tags_of
from frontend.views.page import page, wants_part
from jobs.models import Job
from jobs.selectors.jobs import job_get
from jobs.services.describe import NOTE_LENGTH_MAX, job_describe
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest

_STALE = 412
RENAMED = "Somebody else renamed it meanwhile: theirs is shown, yours is not saved. Saving now replaces theirs."
TAG_RULE = "A tag begins with a small letter or digit; then dots, dashes and underscores may follow too, 50 in all."


@require_POST
@page(Permission.JOBS_WRITE)
def job_describe_page(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Save the note or the name, or add or remove one tag; the answer is the part that changed, or the page."""
    job = job_get(request.tenant, job_id)
    if "note" in request.POST:
        return _note(request, job)
    return _name(request, job) if "name" in request.POST else _tag(request, job)


@require_POST
@page(Permission.JOBS_READ)
def job_note_preview(request: PageRequest, job_id: UUID) -> HttpResponse:
    """What a note would look like; nothing is kept."""
    job_get(request.tenant, job_id)
    text = request.POST.get("note", "")[:NOTE_LENGTH_MAX]
    return render(request, "console/job/preview.html", {"html": markdown(text)})


def _note(request: PageRequest, job: Job) -> HttpResponse:
    draft, expected = request.POST["note"].replace("\r\n", "\n"), _number(request.POST.get("expected", ""))
    if request.POST.get("seen") == seal(job.note):
        expected = job.described  # name or tags were changed meanwhile: that is no conflict about the note
    try:
        job = job_describe(by=request.actor, tenant=request.tenant, job_id=job.pk, expected=expected, note=draft)
    except ApplicationError as error:
        job = job_get(request.tenant, job.pk)
        more = {"draft": draft, "conflict": error.status == _STALE}
        more["note_refusal"] = None if more["conflict"] else refusal_of(error)
        return _answer(request, job, "console/job/note.html", more, status=error.status)
    messages.success(request, "Note saved")
    return _answer(request, job, "console/job/note.html", {})


def _name(request: PageRequest, job: Job) -> HttpResponse:
    draft, expected = request.POST["name"].strip(), _number(request.POST.get("expected", ""))
    if request.POST.get("named") == job.name:
        expected = job.described  # note or tags were changed meanwhile: that is no conflict about the name
    try:
        job = job_describe(by=request.actor, tenant=request.tenant, job_id=job.pk, expected=expected, name=draft)
    except ApplicationError as error:
        told = RENAMED if error.status == _STALE else next((one.detail for one in error.errors), error.detail)
        more = {"name_draft": draft, "name_refusal": told}
        return _answer(request, job_get(request.tenant, job.pk), "console/job/name.html", more, status=error.status)
    messages.success(request, "Name saved")
    return _answer(request, job, "console/job/name.html", {}, shown={"renamed": True})


def _tag(request: PageRequest, job: Job) -> HttpResponse:
    """One tag more or less of those there are now: two people who tag at once do not undo each other."""
    tags = set(tags_of(request.tenant, job))
    tags |= {tag for tag in [request.POST.get("tag", "").strip()] if tag}
    tags -= {request.POST.get("untag", "")}
    try:
        job = job_describe(
            by=request.actor, tenant=request.tenant, job_id=job.pk, expected=job.described, tags=sorted(tags)
        )
    except ApplicationError as error:
        bad = any(one.pointer.startswith("/tags/") for one in error.errors)
        told = TAG_RULE if bad else next((one.detail for one in error.errors), error.detail)
        return _answer(request, job, "console/job/tags.html", {"tag_refusal": told}, status=error.status)
    return _answer(request, job, "console/job/tags.html", {})


def _answer(
    request: PageRequest,
    job: Job,
    part: str,
    more: dict[str, Any],
    *,
    status: int = 200,
    shown: dict[str, Any] | None = None,
) -> HttpResponse:
    """``more``: what was refused; without script the page tells it too. ``shown``: only for the part."""
    if not wants_part(request):
        return show_job(request, job, more, status=status) if more else redirect("frontend:job", job_id=job.pk)
    context = {"job": job, "note": note_of(job), "tags": tags_of(request.tenant, job), "may_write": True}
    return render(request, part, {"draft": None} | context | (shown or {}) | more, status=status)


def _number(text: str) -> int:
    """The version somebody saw; 0, which no job has, where the form was not ours."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
