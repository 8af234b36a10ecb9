"""Parts of a job's page that are asked for on their own: its videos, its episodes, and these as CSV."""

from uuid import UUID

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename
from django.views.decorators.http import require_safe

from frontend.episodes import CAUSES, ReportMissing, episodes_csv, read_episodes
from frontend.videos import OUTCOMES, Wish, gallery
from frontend.views.page import page
from jobs.models import Artifact
from jobs.selectors.jobs import artifact_list, job_get
from tenants.permissions import Permission
from tenants.requests import PageRequest

EPISODES_PER_PAGE = 100


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
    """One page of the episodes with the wanted outcome."""
    context = {"job": job_get(request.tenant, job_id), "causes": CAUSES}
    artifact = _report_of(request, job_id)
    try:
        every = read_episodes(artifact)
    except ReportMissing as error:
        return render(request, "console/parts/episodes.html", context | {"missing": str(error)})
    outcome = request.GET.get("outcome", "")
    chosen = [own for own in every if own.outcome == outcome] if outcome in CAUSES else every
    shown = Paginator(chosen, EPISODES_PER_PAGE).get_page(request.GET.get("page"))
    counts = {name: sum(own.outcome == name for own in every) for name in CAUSES}
    context |= {"shown": shown, "outcome": outcome, "total": len(every)}
    context |= {"counts": [(name, CAUSES[name], count) for name, count in counts.items() if count]}
    return render(request, "console/parts/episodes.html", context | {"many": len({own.task for own in every}) > 1})


@require_safe
@page(Permission.JOBS_READ)
def job_episodes_csv(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Every planned episode, one line each."""
    job = job_get(request.tenant, job_id)
    try:
        lines = episodes_csv(read_episodes(_report_of(request, job_id)))
    except ReportMissing as error:
        return HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
    answer = HttpResponse("".join(lines), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = content_disposition_header(True, f"{get_valid_filename(job.name)}-episodes.csv")
    return answer


def _report_of(request: PageRequest, job_id: UUID) -> Artifact:
    newest = artifact_list(request.tenant, job_id).filter(kind="evaluation").first()
    if newest is None:
        raise Http404("no report yet")
    return newest
