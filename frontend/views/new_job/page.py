"""Ask, show, submit: the page of a new job and the two parts that it reads anew while somebody types."""

from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST
from rest_framework.response import Response

from frontend.forms.bound import Binding, hidden_texts, shown_names
from frontend.forms.presets import PRESETS
from frontend.forms.refused import placed
from frontend.forms.schema import job_form
from frontend.forms.snippets import snippets_of
from frontend.forms.tenant_offers import offering_of
from frontend.refusals import Refusal, refusal_of
from frontend.views.new_job.draft import Draft, draft_of_post, draft_of_query
from frontend.views.new_job.judged import Judged, judge
from frontend.views.page import frame, page, wants_part
from gpu_runtime.protocol.base import fingerprint
from jobs.services.submit import job_submit
from tenants.errors import ApplicationError
from tenants.idempotency import idempotent_act
from tenants.permissions import Permission
from tenants.requests import PageRequest

_PAGE = "console/new_job/page.html"
KIND_CARDS = {
    "sft": ("Fine-tune", "Learn from demonstrations"),
    "rl": ("Reinforce", "A policy practises in simulation"),
    "evaluation": ("Evaluate", "A fixed policy, no training"),
    "rollout": ("Collect rollouts", "A policy's episodes become a dataset"),
}


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.JOBS_WRITE)
def job_new(request: PageRequest) -> HttpResponse:
    """The form, filled in as the link asks; posted, it submits the job and leads to its page."""
    if request.method != "POST":
        return render(request, _PAGE, _context(request, draft_of_query(request.tenant, request.GET.dict())))
    draft = draft_of_post(request.tenant, request.POST)
    try:
        job_id, number = _submitted(request, draft)
    except ApplicationError as error:
        return render(request, _PAGE, _context(request, draft, refusal=refusal_of(error)))
    messages.success(request, f"J-{number} is submitted.")
    return redirect("frontend:job", job_id=job_id)


@require_POST
@page(Permission.JOBS_WRITE)
def job_new_fields(request: PageRequest) -> HttpResponse:
    """The fields for another kind, head, preset or row: what was typed stays. A whole page where htmx did not ask."""
    context = _context(request, draft_of_post(request.tenant, request.POST))
    return render(request, "console/new_job/swapped.html" if wants_part(request) else _PAGE, context)


@require_POST
@page(Permission.JOBS_WRITE)
def job_new_estimate(request: PageRequest) -> HttpResponse:
    """Cost, checks and the request as code, for what stands in the form now."""
    context = _context(request, draft_of_post(request.tenant, request.POST))
    return render(request, "console/new_job/judged.html", context)


def _submitted(request: PageRequest, draft: Draft) -> tuple[str, int]:
    """(id, number) of the job. Sent twice, the same form submits one; changed after a step back, another."""
    spec = draft.spec
    digest = fingerprint(spec)

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


def _context(request: PageRequest, draft: Draft, *, refusal: Refusal | None = None) -> dict[str, Any]:
    """``refusal``: of submitting, whose sentences stand beside the fields."""
    form, offering = job_form(), offering_of(request.tenant, request.actor, draft.texts)
    names = shown_names(Binding(texts=draft.texts, errors={}, offering=offering).sections(form)) | {"kind"}
    judged: Judged = judge(tenant=request.tenant, actor=request.actor, spec=draft.spec, names=names)
    places = placed(refusal.fields if refusal else {}, names)
    sections = Binding(texts=draft.texts, errors=places.fields, offering=offering, parent=draft.parent_texts).sections(
        form
    )
    kind = draft.texts["kind"]
    return frame(request, "jobs") | {
        "draft": draft,
        "kind": kind,
        "kinds": [(key, *KIND_CARDS.get(key, (key.capitalize(), ""))) for key in form.options],
        "presets": PRESETS.get(kind, ()),
        "sections": sections,
        "parked": list(hidden_texts(form, draft.texts, names)),
        "refusal": refusal,
        "loose": places.loose,
        "judged": judged,
        "snippets": snippets_of(draft.spec, request.build_absolute_uri("/").rstrip("/")),
        "labels": _labels(sections),
    }


def _labels(sections: Any) -> dict[str, tuple[str, str]]:
    """Name of a field -> (its id, its label), for sentences that stand elsewhere."""
    found: dict[str, tuple[str, str]] = {}
    for section in sections:
        for item in [*section.parts.items, *(item for fold in section.parts.folds for item in fold.items)]:
            found[getattr(item, "tag_name", item.name)] = (item.id, item.label)
            for row in getattr(item, "rows", ()):
                found |= {own.name: (own.id, own.label) for own in row.parts.items}
    return found
