"""Parts of a job's page that are asked for on their own: what it made, its videos and its episodes."""

from collections import Counter
from http import HTTPStatus
from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.episodes import CAUSES
from frontend.lineage import made_by
from frontend.videos import OUTCOMES, Wish, gallery
from frontend.views.page import page
from jobs.selectors.evaluation import episodes_of, evaluation_report
from jobs.selectors.jobs import job_get
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest

EPISODES_PER_PAGE = 25


@require_safe
@page(Permission.JOBS_READ)
def job_made(request: PageRequest, job_id: UUID) -> HttpResponse:
    """What the job made so far, for the script that keeps it fresh."""
    job = job_get(request.tenant, job_id)
    may_retry = request.actor.may(Permission.DATASETS_WRITE)
    context = {"job": job, "made": made_by(request.tenant, job), "may_retry": may_retry}
    return render(request, "console/parts/made.html", context)


@require_safe
@page(Permission.JOBS_READ)
def job_videos(request: PageRequest, job_id: UUID) -> HttpResponse:
    """The gallery alone, for the script that keeps it fresh."""
    job = job_get(request.tenant, job_id)
    shown = gallery(request.tenant, job.pk, Wish.of(request.GET.dict()))
    context = {"job": job, "gallery": shown, "outcomes": OUTCOMES}
    return render(request, "console/parts/videos.html", context)


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
