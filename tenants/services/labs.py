"""Writes of labs: making one, and pausing its work."""

from django.db import transaction
from django.utils.text import slugify

from tenants.audit.services import audit
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import DEFAULT_PROJECT, Membership, Project, Role, Tenant, TenantState, User
from tenants.quotas.signals import limits_changed
from tenants.scope import tenant_scope


@transaction.atomic
def tenant_create(*, name: str, owner: User, by: User | None = None) -> Tenant:
    """Create a tenant with its first owner. Raises ApplicationError if the name leaves no free slug.

    ``by``: the operator who makes it; None: the command line.
    """
    slug = slugify(name)[:50]
    if not slug or Tenant.objects.filter(slug=slug).exists():
        raise ApplicationError(
            code="name_taken", status=409, detail=f"Tenant name {name!r} is taken or has no letters."
        )
    tenant = Tenant.objects.create(name=name, slug=slug)
    with tenant_scope(tenant):
        Membership.objects.create(tenant=tenant, user=owner, role=Role.OWNER)
        Project.objects.create(tenant=tenant, name="Default", slug=DEFAULT_PROJECT, created_by=owner)
    audit(by=by, verb="tenant.created", target=tenant, tenant=tenant, after={"name": name, "owner": owner.email})
    return tenant


def tenant_pause(*, by: User, tenant: Tenant, reason: str) -> Tenant:
    """Refuse the tenant's new jobs, with the reason; queued ones wait. Raises ApplicationError 422 without one."""
    reason = reason.strip()
    if not reason or len(reason) > 500:
        detail = f"Say why in 1 to 500 characters, the tenant reads it; got {len(reason)}."
        raise ApplicationError(code="reason_required", status=422, detail=detail)
    return _set_state(by=by, tenant=tenant, state=TenantState.PAUSED, reason=reason, verb="tenant.paused")


def tenant_resume(*, by: User, tenant: Tenant) -> Tenant:
    """Let the tenant work again; for one that is not paused nothing changes."""
    return _set_state(by=by, tenant=tenant, state=TenantState.ACTIVE, reason="", verb="tenant.resumed")


@transaction.atomic
def _set_state(*, by: Actor | User, tenant: Tenant, state: TenantState, reason: str, verb: str) -> Tenant:
    row = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    before = {"state": row.state, "paused_reason": row.paused_reason}
    after = {"state": state.value, "paused_reason": reason}
    if before != after:
        row.state, row.paused_reason = state, reason
        row.save(update_fields=["state", "paused_reason"])
        audit(by=by, verb=verb, target=row, tenant=row, before=before, after=after, reason=reason)
        limits_changed.send(Tenant, tenant_id=row.pk)  # what is queued may start, or learns why it does not
    return row
