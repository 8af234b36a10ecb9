"""Reads of the tenants app, inside the actor's scope."""

from django.db.models import QuerySet
from django.utils import timezone

from tenants.errors import ApplicationError, FieldError
from tenants.identity import Actor
from tenants.models import DEFAULT_PROJECT, ApiKey, Invitation, Membership, Project, Tenant
from tenants.permissions import Permission
from tenants.scope import platform_scope, tenant_scope


def member_list(actor: Actor) -> QuerySet[Membership]:
    """Everybody in the actor's tenant."""
    return Membership.objects.filter(tenant=actor.tenant).select_related("user")


def key_list(actor: Actor) -> QuerySet[ApiKey]:
    """The tenant's API keys; those who do not manage members see the ones they made themselves.

    For a key bound to a project only that project's keys exist.
    """
    keys = ApiKey.objects.filter(tenant=actor.tenant).select_related("created_by", "project")
    if actor.project is not None:
        keys = keys.filter(project=actor.project)
    if actor.may(Permission.MEMBERS_MANAGE):
        return keys
    return keys.filter(created_by=actor.user) if actor.user else keys.none()


def invitation_list(actor: Actor) -> QuerySet[Invitation]:
    """Invitations of the actor's tenant, whatever became of them."""
    return Invitation.objects.filter(tenant=actor.tenant).select_related("invited_by")


def invitation_by_token(token_sha256: str) -> Invitation | None:
    """The invitation that still stands, of whatever tenant: the token is the right to know of it."""
    with platform_scope():
        rows = Invitation.objects.select_related("tenant", "invited_by")
        open_ones = rows.filter(accepted_at=None, revoked_at=None, expires_at__gt=timezone.now())
        return open_ones.filter(token_sha256=token_sha256).first()


def project_list(actor: Actor) -> QuerySet[Project]:
    """Projects the actor may see, archived ones too."""
    projects = Project.objects.filter(tenant=actor.tenant)
    return projects.filter(pk=actor.project.pk) if actor.project is not None else projects


def project_for(who: Actor | Tenant, slug: str | None = None) -> Project:
    """The project new work of ``who`` belongs to: the named one, else the key's own, else the tenant's default.

    Raises ApplicationError 422 at `/project` for one that is unknown, archived, or not the key's.
    """
    bound = who.project if isinstance(who, Actor) else None
    tenant = who.tenant if isinstance(who, Actor) else who
    wanted = slug if slug is not None else bound.slug if bound else DEFAULT_PROJECT
    if bound is not None and bound.slug != wanted:
        raise _no_project("not_this_keys", f"This API key is bound to the project {bound.slug!r}; got {wanted!r}.")
    with tenant_scope(tenant):
        project = Project.objects.filter(tenant=tenant, slug=wanted).first()
    if project is None:
        raise _no_project("unknown_project", f"There is no project {wanted!r}; GET /api/v1/projects lists them.")
    if project.archived_at is not None:
        raise _no_project("project_archived", f"The project {wanted!r} is archived; it takes nothing new.")
    return project


def _no_project(code: str, detail: str) -> ApplicationError:
    errors = (FieldError(pointer="/project", code=code, detail=detail),)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=errors)
