"""What the API tells of limits."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework import serializers

from tenants.models import Project, Tenant
from tenants.quotas.limits import Limits, limits_read
from tenants.quotas.models import Quota, Resource
from tenants.quotas.services import PROJECT_RESOURCES
from tenants.quotas.usage import used_of

UNITS: dict[Resource, str] = {
    Resource.RUNNING_JOBS: "jobs",
    Resource.QUEUED_JOBS: "jobs",
    Resource.SLOTS: "jobs",
    Resource.ENV_SEATS: "seats",
    Resource.STORAGE_BYTES: "bytes",
    Resource.UPLOADS: "uploads",
    Resource.REQUESTS_PER_MINUTE: "requests",
    Resource.COMPUTE_S_PER_JOB: "seconds",
    Resource.COMPUTE_S_PER_MONTH: "seconds",
    Resource.MONEY_PER_MONTH: "money",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLine:
    """One limit and how much of it is used. ``used`` None: it is no amount that is held or added up."""

    resource: Resource
    unit: str
    project: Project | None
    limit: int | None
    used: int | None
    source: str
    expires_at: datetime | None
    etag: str | None


class QuotaProjectOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    slug = serializers.CharField()


class QuotaOutput(serializers.Serializer[Any]):
    """A limit. Money and seconds count whole units of the calendar month (UTC) so far."""

    resource = serializers.ChoiceField(choices=Resource.choices)
    unit = serializers.CharField(help_text="jobs, seats, bytes, uploads, requests, seconds, or the currency.")
    project = QuotaProjectOutput(allow_null=True, help_text="Null: of the whole tenant.")
    limit = serializers.IntegerField(allow_null=True, help_text="Null: unlimited.")
    used = serializers.IntegerField(allow_null=True, help_text="Null for limits per minute and per job.")
    source = serializers.ChoiceField(  # type: ignore[assignment]  # the field is called source on the wire
        choices=["own", "default", "none"], help_text="Set for you, the platform's default, or not limited."
    )
    expires_at = serializers.DateTimeField(allow_null=True, help_text="Then the limit before it counts again.")
    etag = serializers.CharField(allow_null=True, help_text="For If-Match; null: operators change it.")


class QuotasOutput(serializers.Serializer[Any]):
    results = QuotaOutput(many=True)


def version_of(row: Quota | None) -> str:
    """What the ETag of a limit is made of."""
    return "none" if row is None else str(row.pk)


def quota_lines(tenant: Tenant, projects: list[Project]) -> list[QuotaLine]:
    """Every limit of the tenant, then those that these projects have. A fixed number of queries."""
    limits, used = limits_read(tenant), used_of(tenant)
    lines = [_line(tenant, limits, resource, None, used.get(None, {}).get(resource)) for resource in Resource]
    for project in projects:
        for resource in PROJECT_RESOURCES:
            if (project.pk, resource) in limits.own:
                lines.append(_line(tenant, limits, resource, project, _used(used, project.pk, resource)))
    return lines


def project_lines(tenant: Tenant, project: Project) -> list[QuotaLine]:
    """Every limit that a project can have, set or not."""
    limits, used = limits_read(tenant), used_of(tenant)
    return [
        _line(tenant, limits, resource, project, _used(used, project.pk, resource)) for resource in PROJECT_RESOURCES
    ]


def quota_line(tenant: Tenant, project: Project, resource: Resource) -> QuotaLine:
    """One limit of a project, set or not."""
    return _line(tenant, limits_read(tenant), resource, project, _used(used_of(tenant), project.pk, resource))


def _used(used: dict[Any, dict[Resource, int]], project_id: UUID, resource: Resource) -> int | None:
    """A project that has never used anything has used 0."""
    return None if resource == Resource.COMPUTE_S_PER_JOB else used.get(project_id, {}).get(resource, 0)


def _line(tenant: Tenant, limits: Limits, resource: Resource, project: Project | None, used: int | None) -> QuotaLine:
    row = limits.own.get((project.pk if project else None, resource))
    limit = limits.of_project(project.pk, resource) if project else limits.of_tenant(resource)
    unit = UNITS[resource]
    return QuotaLine(
        resource=resource,
        unit=tenant.currency if unit == "money" else unit,
        project=project,
        limit=limit,
        used=used,
        source="own" if row else "none" if limit is None else "default",
        expires_at=row.expires_at if row else None,
        etag=version_of(row) if project else None,
    )
