"""Writes of the quotas app: limits are set, replaced and withdrawn, never edited. Each takes effect at once."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from tenants.audit.services import audit
from tenants.errors import ApplicationError, FieldError
from tenants.identity import Actor
from tenants.models import Project, Tenant, User
from tenants.quotas.limits import in_force
from tenants.quotas.models import DefaultQuota, Quota, Resource
from tenants.quotas.signals import limits_changed
from tenants.scope import platform_scope

LIMIT_MAX = 2**63 - 1
PROJECT_RESOURCES = (
    Resource.RUNNING_JOBS,
    Resource.QUEUED_JOBS,
    Resource.SLOTS,
    Resource.ENV_SEATS,
    Resource.COMPUTE_S_PER_JOB,
    Resource.COMPUTE_S_PER_MONTH,
    Resource.MONEY_PER_MONTH,
)
"""What a project may be limited in beside its tenant: everything that its jobs use."""


@transaction.atomic
def quota_set(
    *,
    by: User | Actor,
    tenant: Tenant,
    resource: Resource,
    limit: int,
    project: Project | None = None,
    expires_at: datetime | None = None,
    reason: str = "",
) -> Quota:
    """Set a limit of a tenant or one of its projects, in the resource's unit.

    One without ``expires_at`` replaces what was there. One with it counts until then; after that the one before it
    does again. Raises ApplicationError 422 for an expiry in the past or a resource a project has no limit of.
    """
    _require_sane(resource, limit, project, expires_at)
    _lock(tenant)
    now = timezone.now()
    with platform_scope():
        known = in_force(tenant, at=now).filter(resource=resource, project=project)
        before = known.first()
        replaced = known if expires_at is None else known.exclude(expires_at=None)
        replaced.update(ended_at=now)
        row = Quota.objects.create(
            tenant=tenant,
            project=project,
            resource=resource,
            limit=limit,
            expires_at=expires_at,
            reason=reason,
            created_by=by if isinstance(by, User) else by.user,
        )
    audit(
        by=by,
        verb="quota.set",
        target=project or tenant,
        tenant=tenant,
        before=_told(resource, before),
        after=_told(resource, row),
        reason=reason,
    )
    limits_changed.send(Quota, tenant_id=tenant.pk)
    return row


@transaction.atomic
def quota_withdraw(
    *, by: User | Actor, tenant: Tenant, resource: Resource, project: Project | None = None, reason: str = ""
) -> bool:
    """Withdraw a limit: the tenant is back to the platform's default, a project to none. False if there was none."""
    _lock(tenant)
    now = timezone.now()
    with platform_scope():
        known = in_force(tenant, at=now).filter(resource=resource, project=project)
        before = known.first()
        if before is None:
            return False
        known.update(ended_at=now)
    audit(
        by=by,
        verb="quota.withdrawn",
        target=project or tenant,
        tenant=tenant,
        before=_told(resource, before),
        after=_told(resource, None),
        reason=reason,
    )
    limits_changed.send(Quota, tenant_id=tenant.pk)
    return True


@transaction.atomic
def default_quota_set(*, by: User, resource: Resource, limit: int, reason: str = "") -> DefaultQuota:
    """Set the platform's limit of every tenant without one of its own."""
    _require_sane(resource, limit, None, None)
    known = DefaultQuota.objects.select_for_update(no_key=True).filter(resource=resource).first()
    before = None if known is None else known.limit
    row, _ = DefaultQuota.objects.update_or_create(resource=resource, defaults={"limit": limit})
    audit(
        by=by,
        verb="default_quota.set",
        target=row,
        tenant=None,
        before={"resource": str(resource), "limit": before},
        after={"resource": str(resource), "limit": limit},
        reason=reason,
    )
    limits_changed.send(DefaultQuota, tenant_id=None)
    return row


def quota_for_update(tenant: Tenant, resource: Resource, project: Project | None = None) -> Quota | None:
    """The limit in force, locked with its tenant until the transaction ends; None if there is none of its own."""
    _lock(tenant)
    with platform_scope():
        return in_force(tenant).filter(resource=resource, project=project).first()


def _lock(tenant: Tenant) -> None:
    """Admission reads limits with this row locked, so none is admitted at a limit that was just lowered."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


def _told(resource: Resource, row: Quota | None) -> dict[str, object]:
    expires_at = row.expires_at.isoformat() if row is not None and row.expires_at else None
    return {"resource": str(resource), "limit": None if row is None else row.limit, "expires_at": expires_at}


def _require_sane(resource: Resource, limit: int, project: Project | None, expires_at: datetime | None) -> None:
    if not 0 <= limit <= LIMIT_MAX:
        raise _invalid("/limit", "out_of_range", f"limit {limit}: allowed: 0 to {LIMIT_MAX}.")
    if expires_at is not None and expires_at <= timezone.now():
        raise _invalid("/expires_at", "in_the_past", f"It must lie in the future; got {expires_at.isoformat()}.")
    if project is not None and resource not in PROJECT_RESOURCES:
        allowed = ", ".join(PROJECT_RESOURCES)
        raise _invalid(
            "/resource", "not_per_project", f"A project has no limit {str(resource)!r}. Allowed: {allowed}."
        )


def _invalid(pointer: str, code: str, detail: str) -> ApplicationError:
    error = FieldError(pointer=pointer, code=code, detail=detail)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))
