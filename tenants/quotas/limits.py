"""Which limit counts now: the newest of a tenant's own that is in force, else the platform's default."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from tenants.models import Project, Tenant
from tenants.quotas.models import DefaultQuota, Quota, Resource
from tenants.scope import platform_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit of one tenant and its projects at one moment. None: unlimited."""

    own: dict[tuple[UUID | None, Resource], Quota]  # (project or None for the whole tenant, resource)
    defaults: dict[Resource, int]

    def of_tenant(self, resource: Resource) -> int | None:
        row = self.own.get((None, resource))
        return self.defaults.get(resource) if row is None else row.limit

    def of_project(self, project_id: UUID, resource: Resource) -> int | None:
        """A project's own limit, which applies beside the tenant's; None if nobody set one."""
        row = self.own.get((project_id, resource))
        return None if row is None else row.limit


def limits_read(tenant: Tenant, *, at: datetime | None = None) -> Limits:
    """All of a tenant's limits, its projects' included, in two queries."""
    with platform_scope():
        own: dict[tuple[UUID | None, Resource], Quota] = {}
        for row in in_force(tenant, at=at):
            own.setdefault((row.project_id, Resource(row.resource)), row)
    defaults = {Resource(row.resource): row.limit for row in DefaultQuota.objects.all()}
    return Limits(own=own, defaults=defaults)


def limit_of(tenant: Tenant, resource: Resource, project: Project | None = None) -> int | None:
    """The limit in force now, in the resource's unit; None: unlimited.

    With ``project`` it is the project's own limit, which applies beside the tenant's and has no default.
    """
    with platform_scope():
        row = in_force(tenant).filter(resource=resource, project=project).first()
    if row is not None:
        return row.limit
    if project is not None:
        return None
    return DefaultQuota.objects.filter(resource=resource).values_list("limit", flat=True).first()


def in_force(tenant: Tenant, *, at: datetime | None = None) -> QuerySet[Quota]:
    """A tenant's own limits that are neither replaced nor expired, newest first. Needs an open scope."""
    not_expired = Q(expires_at=None) | Q(expires_at__gt=at or timezone.now())
    return Quota.objects.filter(not_expired, tenant=tenant, ended_at=None).order_by("-created_at", "-pk")
