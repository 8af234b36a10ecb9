"""What a job's page shows of results: films, policies, evaluations; and the parts of it that are asked for alone."""

from collections import Counter
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.episodes import CAUSES
from frontend.evaluations import Report, ReportUnreadable, read_report
from frontend.gallery import gallery
from frontend.lineage import family_of, made_by
from frontend.measured import latest_results, measured
from frontend.success_figure import success_figures
from frontend.videos import OUTCOMES, Wish
from frontend.views.page import page
from jobs.models import Job
from jobs.selectors.evaluation import episodes_of, evaluation_report
from jobs.selectors.jobs import job_get, policy_version_list
from jobs.selectors.policies import heir_counts, policies_of_job, reports_of
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest

EPISODES_PER_PAGE = 25
VERSIONS_PER_PAGE = 25
TRAINING = {"sft", "rl"}  # kinds whose jobs make policies


def rollouts_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For ``console/job/rollouts.html``: the films that the address asks for."""
    shown = gallery(request.tenant, job, Wish.of(request.GET.dict()))
    return {"gallery": shown, "outcomes": OUTCOMES}


def checkpoints_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For ``console/job/checkpoints.html``: versions, published policies, where they come from and lead to."""
    policies = policies_of_job(request.tenant, job)
    keys = [policy.pk for policy in policies]
    results, counts = latest_results(request.tenant, keys), heir_counts(request.tenant, keys)
    versions = policy_version_list(request.tenant, job.pk).order_by("-attempt", "-version")
    return {
        "trains": job.kind in TRAINING,
        "policies": [
            {"policy": policy, "result": results.get(policy.pk), "heirs": sum(counts[policy.pk].values())}
            for policy in policies
        ],
        "versions": Paginator(versions, VERSIONS_PER_PAGE).get_page(request.GET.get("page")),
        "family": family_of(request.tenant, job, policies),
        "may_write": request.actor.may(Permission.JOBS_WRITE),
    }


def evaluation_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For ``console/job/evaluation.html``: an evaluation's report, or what was found of a training job's policies."""
    if job.kind in TRAINING:
        keys = [policy.pk for policy in policies_of_job(request.tenant, job)]
        found = measured(request.tenant, keys, start=job.policy_id)
        return {"trains": True, "measured": found, "figures": success_figures(found)}
    artifact = reports_of(request.tenant, [job.pk]).get(job.pk)
    if artifact is None:
        return {"trains": False}
    try:
        report: Report | None = read_report(artifact.manifest)
    except ReportUnreadable:
        report = None  # said to be so; the rest of the page stays
    return {"trains": False, "report": report, "report_artifact": artifact}


@require_safe
@page(Permission.JOBS_READ)
def job_made(request: PageRequest, job_id: UUID) -> HttpResponse:
    """What the job made so far, for the script that keeps it fresh."""
    job = job_get(request.tenant, job_id)
    may_retry = request.actor.may(Permission.DATASETS_WRITE)
    may = {"datasets_read": request.actor.may(Permission.DATASETS_READ)}
    context = {"job": job, "made": made_by(request.tenant, job), "may_retry": may_retry, "may": may}
    return render(request, "console/parts/made.html", context)


@require_safe
@page(Permission.JOBS_READ)
def job_videos(request: PageRequest, job_id: UUID) -> HttpResponse:
    """The gallery alone, for the script that keeps it fresh."""
    job = job_get(request.tenant, job_id)
    return render(request, "console/parts/videos.html", {"job": job} | rollouts_context(request, job))


@require_safe
@page(Permission.JOBS_READ)
def job_episodes(request: PageRequest, job_id: UUID) -> HttpResponse:
    """One page of the episodes with the wanted outcome; a report that cannot be read now is said to be so."""
    try:
        every = episodes_of(evaluation_report(request.tenant, job_id))
    except ApplicationError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise
        return render(request, "console/parts/episodes.html", {"missing": error.detail})
    outcome = request.GET.get("outcome", "")
    chosen = [own for own in every if own.outcome == outcome] if outcome in CAUSES else every
    found = Counter(own.outcome for own in every)
    context = {
        "shown": Paginator(chosen, EPISODES_PER_PAGE).get_page(request.GET.get("page")),
        "outcome": outcome,
        "total": len(every),
        "counts": [(name, words, found[name]) for name, words in CAUSES.items() if found[name]],
        "many": len({own.task for own in every}) > 1,
    }
    return render(request, "console/parts/episodes.html", context)
