"""Writes of invitations: an offer of a role to one e-mail address, good once and for a week."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.access import access_row
from tenants.audit.services import audit
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.invitation_mail import send_invitation
from tenants.models import Invitation, Membership, Role, Tenant, User
from tenants.permissions import may_grant
from tenants.scope import tenant_scope
from tenants.selectors import invitation_list
from tenants.services.guards import require_grant
from tenants.services.members import membership_create

VALID_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedInvitation:
    """A fresh invitation and its token, which nobody can read again."""

    row: Invitation
    token: str


@transaction.atomic
def invitation_create(*, actor: Actor, email: str, role: str, link: Callable[[str], str]) -> IssuedInvitation:
    """Offer a role to an address and send it the token; ``link`` turns a token into the page's address.

    Raises ApplicationError 403 for a stronger role than the actor's, 409 for members and a second open invitation.
    """
    require_grant(actor, role)
    return _offer(by=actor, tenant=actor.tenant, email=email, role=role, link=link)


@transaction.atomic
def owner_invite(*, by: User, tenant: Tenant, email: str, reason: str, link: Callable[[str], str]) -> IssuedInvitation:
    """An operator's offer to own a tenant. Raises ApplicationError 409 for members and a second open invitation."""
    with tenant_scope(tenant):
        return _offer(by=by, tenant=tenant, email=email, role=Role.OWNER, reason=reason, link=link)


@transaction.atomic
def invitation_revoke(*, actor: Actor, invitation_id: UUID) -> None:
    """Take an offer back; twice is the same. Raises ApplicationError 409 for one that was accepted."""
    row = access_row(invitation_list(actor), "invitation", pk=invitation_id)
    require_grant(actor, row.role)
    open_ones = Invitation.objects.filter(tenant=actor.tenant, pk=row.pk, accepted_at=None)
    if not open_ones.exists():
        detail = f"{row.email} accepted it; remove the member instead."
        raise ApplicationError(code="invitation_accepted", status=409, detail=detail)
    if open_ones.filter(revoked_at=None).update(revoked_at=timezone.now()):
        audit(by=actor, verb="invitation.revoked", target=row, name=row.email, tenant=actor.tenant)


@transaction.atomic
def invitation_accept(*, invitation: Invitation, user: User) -> Membership:
    """Make the invited person a member. Of several who try at once with one token, one succeeds.

    Raises ApplicationError: 403 if the address is not the user's, 410 if the offer no longer stands, 409 for members.
    """
    if user.email.lower() != invitation.email:
        detail = "This invitation was sent to another address than that of your account."
        raise ApplicationError(code="not_invited", status=403, detail=detail)
    tenant, now = invitation.tenant, timezone.now()
    with tenant_scope(tenant):
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        open_ones = Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None, expires_at__gt=now)
        claimed = open_ones.filter(pk=invitation.pk).update(accepted_at=now, accepted_by=user)
        if claimed != 1 or not _still_offered(invitation):
            raise gone()
        membership = membership_create(tenant=tenant, user=user, role=invitation.role)
        by = Actor(tenant=tenant, role=invitation.role, user=user)
        after: dict[str, Any] = {"email": user.email, "role": invitation.role}
        audit(by=by, verb="invitation.accepted", target=invitation, name=user.email, tenant=tenant, after=after)
    return membership


@transaction.atomic
def invitation_sign_up(*, invitation: Invitation, password: str) -> User:
    """Make an account for the invited address, which the token proves, and accept. The only way to sign up.

    Raises ApplicationError 409 if the address has an account, else as `invitation_accept`.
    """
    try:
        with transaction.atomic():
            user = User.objects.create_user(invitation.email, password)
    except IntegrityError:
        raise ApplicationError(
            code="account_exists", status=409, detail=f"{invitation.email} has an account; log in to accept."
        ) from None
    invitation_accept(invitation=invitation, user=user)
    return user


def token_sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def gone() -> ApplicationError:
    """The one answer for a token that is unknown, used, revoked or too old."""
    detail = "This invitation is not valid, was used, was taken back, or has expired. Ask for a new one."
    return ApplicationError(code="invitation_gone", status=410, detail=detail)


def _offer(
    *,
    by: Actor | User,
    tenant: Tenant,
    email: str,
    role: str,
    link: Callable[[str], str],
    reason: str = "",
) -> IssuedInvitation:
    """``by``: a member or key of the tenant, or an operator, who is none and so not ``invited_by``."""
    email = email.strip().lower()
    if Membership.objects.filter(tenant=tenant, user__email=email).exists():
        raise ApplicationError(code="already_a_member", status=409, detail=f"{email} is a member already.")
    now = timezone.now()
    Invitation.objects.filter(  # one that ran out is no longer in the way
        tenant=tenant, email=email, accepted_at=None, revoked_at=None, expires_at__lte=now
    ).update(revoked_at=now)
    token = secrets.token_urlsafe(32)
    row = _insert(tenant, by.user if isinstance(by, Actor) else None, email, role, token)
    after = {"email": email, "role": role, "expires_at": row.expires_at.isoformat()}
    audit(by=by, verb="invitation.created", target=row, name=email, tenant=tenant, after=after, reason=reason)
    transaction.on_commit(lambda: send_invitation(row, link(token), inviter=_inviter(by)))
    return IssuedInvitation(row=row, token=token)


def _inviter(by: Actor | User) -> str:
    """As the letter calls whoever invites."""
    if isinstance(by, User):
        return "The operator of the platform"
    return by.user.email if by.user else "An API key"


def _insert(tenant: Tenant, invited_by: User | None, email: str, role: str, token: str) -> Invitation:
    try:
        with transaction.atomic():
            return Invitation.objects.create(
                tenant=tenant,
                email=email,
                role=role,
                token_sha256=token_sha256(token),
                invited_by=invited_by,
                expires_at=timezone.now() + VALID_FOR,
            )
    except IntegrityError:
        detail = f"{email} has an open invitation; revoke it first."
        raise ApplicationError(code="already_invited", status=409, detail=detail) from None


def _still_offered(invitation: Invitation) -> bool:
    """A member who invited must still be one who may hand out the role."""
    if invitation.invited_by_id is None:
        return True
    members = Membership.objects.filter(tenant=invitation.tenant, user__is_active=True)
    inviter = members.filter(user=invitation.invited_by_id).first()
    return inviter is not None and may_grant(inviter.role, invitation.role)
