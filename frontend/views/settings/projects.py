"""What the lab groups its jobs, keys and budgets by."""

from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from frontend.refusals import Refusal
from frontend.views.page import frame, page
from frontend.views.settings.acts import acted
from tenants import services
from tenants.access import access_row
from tenants.api.projects import ProjectInput, ProjectNameInput
from tenants.bodies import parse_body
from tenants.models import DEFAULT_PROJECT
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.selectors import project_list

BACK = "frontend:settings_projects"


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.PROJECTS_READ)
def projects_page(request: PageRequest) -> HttpResponse:
    """Projects, archived ones last; POST makes one."""
    if request.method != "POST":
        return _shown(request)
    if not request.actor.may(Permission.PROJECTS_MANAGE):
        raise PermissionDenied
    return acted(
        request,
        lambda: _create(request),
        said="The project is made.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form="new", refusal=refusal, status=status),
    )


@require_POST
@page(Permission.PROJECTS_MANAGE)
def project_rename(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Give it another name; its slug stays."""

    access_row(project_list(request.actor), "project", pk=project_id)

    def rename() -> None:
        body = parse_body(ProjectNameInput, {"name": request.POST.get("name", "").strip()})
        services.project_rename(actor=request.actor, project_id=project_id, name=body.name)

    return acted(
        request,
        rename,
        said="The project is renamed. Its short name in the API stays.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form=str(project_id), refusal=refusal, status=status),
    )


@require_POST
@page(Permission.PROJECTS_MANAGE)
def project_archive(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Close it for new jobs and keys."""
    return acted(
        request,
        lambda: services.project_archive(actor=request.actor, project_id=project_id),
        said="The project is archived: it takes no new jobs, its keys are revoked, its history stays.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form=str(project_id), refusal=refusal, status=status),
    )


def _create(request: PageRequest) -> None:
    slug = request.POST.get("slug", "").strip()
    sent = {"name": request.POST.get("name", "").strip()} | ({"slug": slug} if slug else {})
    body = parse_body(ProjectInput, sent)
    services.project_create(actor=request.actor, name=body.name, slug=body.slug)


def _shown(request: PageRequest, *, form: str = "", refusal: Refusal | None = None, status: int = 200) -> HttpResponse:
    rows = list(project_list(request.actor).select_related("created_by").order_by("name", "pk"))
    context = frame(request, "settings") | {
        "section": "projects",
        "projects": sorted(rows, key=lambda row: row.archived_at is not None),
        "default": DEFAULT_PROJECT,
        "form": form,
        "refusal": refusal,
        "typed": request.POST.dict(),
    }
    return render(request, "console/settings/projects.html", context, status=status)
