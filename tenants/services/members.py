"""Writes of memberships: who belongs to a lab, in which role."""

from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.access import not_found
from tenants.access_changes import access_changed
from tenants.audit.services import audit
from tenants.errors import ApplicationError, invalid
from tenants.identity import Actor
from tenants.models import ApiKey, Membership, Role, Tenant, User
from tenants.permissions import may_grant
from tenants.services.guards import require_grant


@transaction.atomic
def member_add(*, actor: Actor, email: str, role: str) -> Membership:
    """Give an existing user a role. Raises ApplicationError for unknown users, members and stronger roles."""
    require_grant(actor, role)
    user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
    if user is None:
        raise invalid("/email", "unknown_user", f"No user has the address {email!r}; invite them.")
    membership = membership_create(tenant=actor.tenant, user=user, role=role)
    _told(actor, "member.added", membership, after={"email": user.email, "role": role})
    return membership


def membership_create(*, tenant: Tenant, user: User, role: str) -> Membership:
    """Insert the row; the unique index decides who was first. Raises ApplicationError 409 for a member."""
    try:
        with transaction.atomic():
            return Membership.objects.create(tenant=tenant, user=user, role=role)
    except IntegrityError:
        raise ApplicationError(
            code="already_a_member", status=409, detail=f"{user.email} is a member already."
        ) from None


@transaction.atomic
def member_set_role(*, actor: Actor, membership_id: int, role: str) -> Membership:
    """Change a member's role and revoke the keys they made that are stronger now. The last owner stays owner."""
    require_grant(actor, role)
    membership = _locked_member(actor, membership_id)
    if membership.role == Role.OWNER and role != Role.OWNER:
        _require_other_owner(membership)
    before, membership.role = {"role": membership.role}, role
    membership.save(update_fields=["role"])
    stronger = [other for other in Role.values if not may_grant(role, other)]
    revoked = _revoke_keys(membership, role__in=stronger)
    access_changed([membership.user_id])
    _told(actor, "member.role_changed", membership, before=before, after={"role": role, "keys_revoked": revoked})
    return membership


@transaction.atomic
def member_remove(*, actor: Actor, membership_id: int) -> None:
    """Remove a member and revoke the keys they made here. The last owner cannot leave."""
    membership = _locked_member(actor, membership_id)
    if membership.role == Role.OWNER:
        _require_other_owner(membership)
    revoked = _revoke_keys(membership)
    before = {"email": membership.user.email, "role": membership.role}
    access_changed([membership.user_id])
    _told(actor, "member.removed", membership, before=before, after={"keys_revoked": revoked})
    membership.delete()


def _revoke_keys(membership: Membership, **which: object) -> int:
    """End the member's keys of this tenant; returns how many."""
    keys = ApiKey.objects.filter(tenant=membership.tenant_id, created_by=membership.user_id, revoked_at=None)
    return keys.filter(**which).update(revoked_at=timezone.now())


def _locked_member(actor: Actor, membership_id: int) -> Membership:
    """The membership, with the tenant row locked so that two owners cannot leave at once.

    Owners are changed by owners only.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=actor.tenant.pk)
    membership = Membership.objects.filter(pk=membership_id).select_related("user").first()
    if membership is None:
        raise not_found("member")
    if membership.role == Role.OWNER:
        require_grant(actor, Role.OWNER)
    return membership


def _require_other_owner(membership: Membership) -> None:
    others = Membership.objects.filter(tenant=membership.tenant_id, role=Role.OWNER, user__is_active=True)
    if not others.exclude(pk=membership.pk).exists():
        raise ApplicationError(
            code="last_owner", status=409, detail="The last owner cannot leave; make somebody else an owner first."
        )


def _told(
    actor: Actor,
    verb: str,
    membership: Membership,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    name = membership.user.email
    audit(by=actor, verb=verb, target=membership, name=name, tenant=actor.tenant, before=before, after=after)
