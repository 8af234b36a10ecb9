"""Writes of labs: making one, and pausing its work."""

from collections.abc import Callable

from django.db import transaction
from django.utils.text import slugify

from tenants.audit.services import audit
from tenants.billing.prices.first_plan import first_plan_set
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import DEFAULT_CURRENCY, DEFAULT_PROJECT, Membership, Project, Role, Tenant, TenantState, User
from tenants.quotas.signals import limits_changed
from tenants.scope import tenant_scope
from tenants.services.invitations import IssuedInvitation, owner_invite


@transaction.atomic
def tenant_create(
    *,
    name: str,
    owner: User | None,
    currency: str = DEFAULT_CURRENCY,
    by: User | None = None,
    reason: str = "",
) -> Tenant:
    """Create a tenant with its first owner; ``owner`` None: somebody who is invited next (`tenant_open`).

    Its currency is for good. Raises ApplicationError: 409 if the name leaves no free slug, 422 for a currency in which
    no plan is complete. ``by``: the operator who makes it; None: the command line.
    """
    slug = slugify(name)[:50]
    if not slug or Tenant.objects.filter(slug=slug).exists():
        raise ApplicationError(
            code="name_taken", status=409, detail=f"Tenant name {name!r} is taken or has no letters."
        )
    tenant = Tenant.objects.create(name=name, slug=slug, currency=currency)
    plan = first_plan_set(tenant)
    with tenant_scope(tenant):
        if owner is not None:
            Membership.objects.create(tenant=tenant, user=owner, role=Role.OWNER)
        Project.objects.create(tenant=tenant, name="Default", slug=DEFAULT_PROJECT, created_by=owner)
    after = {"name": name, "owner": owner.email if owner else None, "currency": currency, "plan": plan.code}
    audit(by=by, verb="tenant.created", target=tenant, tenant=tenant, after=after, reason=reason)
    return tenant


@transaction.atomic
def tenant_open(
    *, by: User, name: str, email: str, currency: str, reason: str, link: Callable[[str], str]
) -> tuple[Tenant, IssuedInvitation | None]:
    """An operator makes a tenant for whoever has this address: who has an account owns it at once.

    Everybody else is sent an invitation to own it, and gets an account by accepting. Raises like `tenant_create`.
    """
    owner = User.objects.filter(email=email.strip().lower()).first()
    tenant = tenant_create(name=name, owner=owner, currency=currency, by=by, reason=reason)
    if owner is not None:
        return tenant, None
    return tenant, owner_invite(by=by, tenant=tenant, email=email, reason=reason, link=link)


def tenant_pause(*, by: User, tenant: Tenant, reason: str) -> Tenant:
    """Refuse the tenant's new jobs, with the reason; queued ones wait. Raises ApplicationError 422 without one."""
    reason = reason.strip()
    if not reason or len(reason) > 500:
        detail = f"Say why in 1 to 500 characters, the tenant reads it; got {len(reason)}."
        raise ApplicationError(code="reason_required", status=422, detail=detail)
    return _set_state(by=by, tenant=tenant, state=TenantState.PAUSED, reason=reason, verb="tenant.paused")


def tenant_resume(*, by: User, tenant: Tenant, reason: str = "") -> Tenant:
    """Let the tenant work again; for one that is not paused nothing changes."""
    return _set_state(by=by, tenant=tenant, state=TenantState.ACTIVE, reason=reason, verb="tenant.resumed")


@transaction.atomic
def _set_state(*, by: Actor | User, tenant: Tenant, state: TenantState, reason: str, verb: str) -> Tenant:
    row = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    before = {"state": row.state, "paused_reason": row.paused_reason}
    after = {"state": state.value, "paused_reason": reason if state is TenantState.PAUSED else ""}
    if before != after:
        row.state, row.paused_reason = state, after["paused_reason"]
        row.save(update_fields=["state", "paused_reason"])
        audit(by=by, verb=verb, target=row, tenant=row, before=before, after=after, reason=reason)
        limits_changed.send(Tenant, tenant_id=row.pk)  # what is queued may start, or learns why it does not
    return row
