"""What the templates of a new job are given: the form, its estimate, and the same request as code."""

from dataclasses import replace
from typing import Any

from frontend.forms.bound import Binding
from frontend.forms.items import Section, labels_of
from frontend.forms.offers import Offering
from frontend.forms.presets import PRESETS
from frontend.forms.refused import NOTHING, placed
from frontend.forms.schema import job_form
from frontend.forms.snippets import snippets_of
from frontend.forms.tenant_offers import offering_of
from frontend.forms.walk import chosen_tags, parked_texts
from frontend.refusals import refusal_of
from frontend.views.new_job.draft import Draft
from frontend.views.new_job.judged import judge
from frontend.views.page import frame
from jobs.selectors.jobs import job_list
from tenants.errors import ApplicationError
from tenants.requests import PageRequest

PAST_SHOWN = 30  # jobs to load settings of
KIND_CARDS = {
    "sft": ("Fine-tune", "Learn from demonstrations"),
    "rl": ("Reinforce", "A policy practises in simulation"),
    "evaluation": ("Evaluate", "A fixed policy, no training"),
    "rollout": ("Collect rollouts", "A policy's episodes become a dataset"),
}


def whole(request: PageRequest, draft: Draft, *, error: ApplicationError | None = None) -> dict[str, Any]:
    """The page. ``error``: why it was not submitted, which is told beside the fields too."""
    form, offering = job_form(), offering_of(request.tenant, request.actor, draft.texts)
    draft = replace(draft, texts=draft.texts | chosen_tags(form, draft.texts) | _only_ones(draft, offering))
    names = _names(draft)
    places = placed(error, names) if error else NOTHING
    sections = Binding(texts=draft.texts, errors=places.fields, offering=offering, parent=draft.parent_texts).sections(
        form
    )
    kind = draft.texts["kind"]
    past = job_list(request.tenant).only("pk", "number", "name", "kind").select_related(None)
    return (
        frame(request, "jobs")
        | {
            "kind": kind,
            "kinds": [(key, *KIND_CARDS.get(key, (key.capitalize(), ""))) for key in form.options],
            "presets": PRESETS.get(kind, ()),
            "sections": sections,
            "parked": list(parked_texts(form, draft.texts, names | {"cloned_from"})),
            "refusal": refusal_of(error) if error else None,
            "refused": places,
            "is_under_way": error is not None and error.code == "request_in_progress",
            "past": past[:PAST_SHOWN],
        }
        | beside(request, draft)
    )


def beside(request: PageRequest, draft: Draft) -> dict[str, Any]:
    """What stands beside the form and is read anew while somebody types."""
    sections = _bare_sections(draft)
    names = set(labels_of(sections)) | {"kind"}
    return {
        "draft": draft,
        "judged": judge(tenant=request.tenant, actor=request.actor, spec=draft.spec, names=names),
        "snippets": snippets_of(draft.spec, request.build_absolute_uri("/").rstrip("/")),
        "labels": labels_of(sections),
    }


def _bare_sections(draft: Draft) -> tuple[Section, ...]:
    """Which fields there are, whatever they offer."""
    return Binding(texts=draft.texts, errors={}, offering=Offering()).sections(job_form())


def _names(draft: Draft) -> set[str]:
    return set(labels_of(_bare_sections(draft))) | {"kind"}


def _only_ones(draft: Draft, offering: Offering) -> dict[str, str]:
    """Lists without an empty entry show their first one, so it is chosen."""
    return {
        name: offers.choices[0].value
        for name, offers in offering.offers.items()
        if offers.closed
        and all(offer.value for offer in offers.choices)
        and offers.choices
        and not draft.texts.get(name)
    }
