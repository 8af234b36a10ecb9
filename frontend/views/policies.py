"""Policies: the list, one of them, and several side by side."""

from contextlib import suppress
from urllib.parse import urlencode
from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.facts import KIND_WORDS
from frontend.lineage import family_of
from frontend.measured import latest_results, measured
from frontend.policies import evaluate_options, lora_section, manifest_facts, policy_facts, row_of
from frontend.policy_comparison import comparison_of
from frontend.refusals import Refusal
from frontend.success_figure import success_figures
from frontend.views.page import answer, frame, page
from jobs.models import Artifact
from jobs.selectors.policies import (
    PolicyChoices,
    PolicyFilter,
    PolicySort,
    heir_counts,
    live_heirs,
    policies_by_id,
    policies_of_job,
    policy_choices,
    policy_get,
    policy_list,
)
from tenants.permissions import Permission
from tenants.requests import PageRequest

PER_PAGE = 50
COMPARED_MAX = 10
SORT_WORDS = {
    PolicySort.NEWEST: "Newest first",
    PolicySort.OLDEST: "Oldest first",
    PolicySort.NAME: "By name",
    PolicySort.SUCCESS: "Best success first",
    PolicySort.SIZE: "Largest first",
}
TRAINED_WORDS = {kind: KIND_WORDS[kind] for kind in ("sft", "rl")}


@require_safe
@page(Permission.JOBS_READ)
def policy_table(request: PageRequest) -> HttpResponse:
    """Filters and order live in the query string; what cannot be meant is taken as not said."""
    choices = policy_choices(request.tenant)
    wanted = _wanted(request, choices)
    shown = Paginator(policy_list(request.tenant, wanted), PER_PAGE).get_page(request.GET.get("page"))
    keys = [policy.pk for policy in shown]
    results, counts = latest_results(request.tenant, keys), heir_counts(request.tenant, keys)
    told = {"q": wanted.query, "base": wanted.base_model, "head": wanted.head, "trained": wanted.kind}
    told |= {"sort": "" if wanted.sort is PolicySort.NEWEST else wanted.sort, "deleted": "1" if wanted.deleted else ""}
    context = {
        "rows": [
            row_of(policy, result=results.get(policy.pk), heirs=sum(counts[policy.pk].values())) for policy in shown
        ],
        "shown": shown,
        "wanted": wanted,
        "choices": choices,
        "sorts": SORT_WORDS,
        "trained": TRAINED_WORDS,
        "filters": urlencode({name: value for name, value in told.items() if value}),
        "filtered": any(told[name] for name in ("q", "base", "head", "trained")),
        "compared_max": COMPARED_MAX,
    }
    return answer(
        request, "console/policies/list.html", "console/policies/rows.html", frame(request, "policies") | context
    )


@require_safe
@page(Permission.JOBS_READ)
def policy_page(request: PageRequest, policy_id: UUID) -> HttpResponse:
    """Everything about one policy."""
    return show_policy(request, policy_get(request.tenant, policy_id))


def show_policy(
    request: PageRequest, policy: Artifact, *, refusal: Refusal | None = None, keep_days: str = "", status: int = 200
) -> HttpResponse:
    """The page of a policy; ``refusal``: why what was asked of it was not done; ``keep_days``: as it was typed."""
    job = policy.job
    siblings = policies_of_job(request.tenant, job)
    found = measured(request.tenant, [own.pk for own in siblings], start=job.policy_id)
    latest = latest_results(request.tenant, [policy.pk]).get(policy.pk)
    counts = heir_counts(request.tenant, [policy.pk])[policy.pk]
    context = frame(request, "policies") | {
        "policy": policy,
        "job": job,
        "facts": policy_facts(policy),
        "manifest": manifest_facts(policy),
        "has_lora": bool(lora_section(policy)),
        "siblings": [row for row in siblings if row.pk != policy.pk],
        "family": family_of(request.tenant, job, [policy]),
        "measured": found,
        "latest": latest,
        "evaluate_options": evaluate_options(policy, latest.job if latest else None),
        "figures": success_figures(found),
        "heir_count": sum(counts.values()),
        "live_heirs": live_heirs(request.tenant, policy.pk),
        "may_write": request.actor.may(Permission.JOBS_WRITE),
        "refusal": refusal,
        "keep_days": keep_days,
    }
    return render(request, "console/policies/policy.html", context, status=status)


@require_safe
@page(Permission.JOBS_READ)
def policy_comparison(request: PageRequest) -> HttpResponse:
    """Two to ten policies side by side; ids that name none of the tenant's policies are counted and said."""
    named = list(dict.fromkeys(request.GET.getlist("policy")))
    found = policies_by_id(request.tenant, _ids(named)[:COMPARED_MAX])
    asked = len(named)
    context = frame(request, "policies") | {
        "comparison": comparison_of(found, latest_results(request.tenant, [policy.pk for policy in found])),
        "missing": asked - len(found) if asked <= COMPARED_MAX else 0,
        "too_many": asked > COMPARED_MAX,
        "compared_max": COMPARED_MAX,
    }
    return render(request, "console/policies/compare.html", context)


def _wanted(request: PageRequest, choices: PolicyChoices) -> PolicyFilter:
    said = {
        name: request.GET.get(name, "").replace("\0", "").strip()[:200] for name in ("q", "base", "head", "trained")
    }
    sort = request.GET.get("sort", "")
    return PolicyFilter(
        query=said["q"],
        base_model=said["base"] if said["base"] in choices.base_models else "",
        head=said["head"] if said["head"] in choices.heads else "",
        kind=said["trained"] if said["trained"] in TRAINED_WORDS else "",
        deleted=request.GET.get("deleted") == "1",
        sort=PolicySort(sort) if sort in set(PolicySort) else PolicySort.NEWEST,
    )


def _ids(texts: list[str]) -> list[UUID]:
    """Those that are ids, each once."""
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(UUID(text))
    return list(dict.fromkeys(found))
