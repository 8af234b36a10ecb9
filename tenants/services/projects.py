"""Writes of projects: what a lab groups its jobs, keys and budgets by."""

from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from tenants.access import access_row
from tenants.audit.services import audit
from tenants.errors import ApplicationError, invalid
from tenants.identity import Actor
from tenants.models import DEFAULT_PROJECT, ApiKey, Project, Tenant
from tenants.selectors import project_list

_SLUG_MAX = 50


@transaction.atomic
def project_create(*, actor: Actor, name: str, slug: str | None = None) -> Project:
    """Make a project; without ``slug`` it is made of the name. A key bound to a project makes none.

    Raises ApplicationError 409 for a slug that is taken, by an archived project too: old jobs still say it.
    """
    if actor.project is not None:
        detail = f"This API key is bound to the project {actor.project.slug!r}; it makes no others."
        raise ApplicationError(code="permission_denied", status=403, detail=detail)
    wanted = slug or slugify(name)[:_SLUG_MAX].strip("-_")
    if not wanted:
        raise invalid("/name", "no_slug", f"{name!r} has no letters a slug could be made of; give a slug too.")
    try:
        with transaction.atomic():
            project = Project.objects.create(tenant=actor.tenant, name=name, slug=wanted, created_by=actor.user)
    except IntegrityError:
        detail = f"There is a project {wanted!r} already."
        raise ApplicationError(code="project_exists", status=409, detail=detail) from None
    after = {"name": name, "slug": wanted}
    audit(by=actor, verb="project.created", target=project, tenant=actor.tenant, after=after)
    return project


@transaction.atomic
def project_rename(*, actor: Actor, project_id: UUID, name: str) -> Project:
    """Change what people call it; its slug stays, jobs name it by that."""
    project = _locked_project(actor, project_id)
    before, project.name = {"name": project.name}, name
    project.save(update_fields=["name"])
    audit(by=actor, verb="project.renamed", target=project, tenant=actor.tenant, before=before, after={"name": name})
    return project


@transaction.atomic
def project_archive(*, actor: Actor, project_id: UUID) -> Project:
    """Take no new jobs and keys; history stays and its keys end. Doing it twice is the same.

    Raises ApplicationError 409 for the default project, which work without a project goes to.
    """
    project = _locked_project(actor, project_id)
    if project.slug == DEFAULT_PROJECT:
        detail = "The default project cannot be archived: jobs that name none go there."
        raise ApplicationError(code="default_project", status=409, detail=detail)
    if project.archived_at is None:
        project.archived_at = timezone.now()
        project.save(update_fields=["archived_at"])
        keys = ApiKey.objects.filter(tenant=actor.tenant, project=project, revoked_at=None)
        revoked = keys.update(revoked_at=project.archived_at)
        after = {"keys_revoked": revoked}
        audit(by=actor, verb="project.archived", target=project, tenant=actor.tenant, after=after)
    return project


def _locked_project(actor: Actor, project_id: UUID) -> Project:
    """The project behind the tenant's lock, which submitting takes too: no job slips into an archived one."""
    Tenant.objects.select_for_update(no_key=True).get(pk=actor.tenant.pk)
    return access_row(project_list(actor), "project", pk=project_id)
