"""Writes of the tenants app: labs, their members and their API keys."""

from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from tenants.access import access_row, not_found
from tenants.errors import ApplicationError, FieldError
from tenants.identity import Actor, new_secret
from tenants.models import DEFAULT_PROJECT, ApiKey, Membership, Project, Role, Tenant, User
from tenants.permissions import may_grant
from tenants.scope import tenant_scope
from tenants.selectors import key_list


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A fresh API key and its text, which nobody can read again."""

    row: ApiKey
    text: str


@transaction.atomic
def tenant_create(*, name: str, owner: User) -> Tenant:
    """Create a tenant with its first owner. Raises ApplicationError if the name leaves no free slug."""
    slug = slugify(name)[:50]
    if not slug or Tenant.objects.filter(slug=slug).exists():
        raise ApplicationError(
            code="name_taken", status=409, detail=f"Tenant name {name!r} is taken or has no letters."
        )
    tenant = Tenant.objects.create(name=name, slug=slug)
    with tenant_scope(tenant):
        Membership.objects.create(tenant=tenant, user=owner, role=Role.OWNER)
        Project.objects.create(tenant=tenant, name="Default", slug=DEFAULT_PROJECT, created_by=owner)
    return tenant


def member_add(*, actor: Actor, email: str, role: str) -> Membership:
    """Give an existing user a role. Raises ApplicationError for unknown users, members and stronger roles."""
    _require_grant(actor, role)
    user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
    if user is None:
        raise _invalid("/email", "unknown_user", f"No user has the address {email!r}; ask them to sign up first.")
    try:
        with transaction.atomic():
            return Membership.objects.create(tenant=actor.tenant, user=user, role=role)
    except IntegrityError:
        raise ApplicationError(code="already_a_member", status=409, detail=f"{email} is a member already.") from None


@transaction.atomic
def member_set_role(*, actor: Actor, membership_id: int, role: str) -> Membership:
    """Change a member's role. The last owner stays owner."""
    _require_grant(actor, role)
    membership = _locked_member(actor, membership_id)
    if membership.role == Role.OWNER and role != Role.OWNER:
        _require_other_owner(membership)
    membership.role = role
    membership.save(update_fields=["role"])
    return membership


@transaction.atomic
def member_remove(*, actor: Actor, membership_id: int) -> None:
    """Remove a member and revoke the keys they made here. The last owner cannot leave."""
    membership = _locked_member(actor, membership_id)
    if membership.role == Role.OWNER:
        _require_other_owner(membership)
    ApiKey.objects.filter(created_by=membership.user_id, revoked_at=None).update(revoked_at=timezone.now())
    membership.delete()


def key_create(*, actor: Actor, name: str, role: str, expires_at: datetime | None = None) -> IssuedKey:
    """Issue an API key that is no stronger than its maker."""
    _require_grant(actor, role)
    if expires_at is not None and expires_at <= timezone.now():
        raise _invalid("/expires_at", "in_the_past", f"It must lie in the future; got {expires_at.isoformat()}.")
    prefix, secret_sha256, text = new_secret()
    row = ApiKey.objects.create(
        tenant=actor.tenant,
        name=name,
        role=role,
        prefix=prefix,
        secret_sha256=secret_sha256,
        created_by=actor.user,
        expires_at=expires_at,
    )
    return IssuedKey(row=row, text=text)


def key_revoke(*, actor: Actor, key_id: object) -> None:
    """End a key at once; ending it twice is the same. Raises 404 for keys the actor may not see."""
    key = access_row(key_list(actor), "API key", pk=key_id)
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())


def _locked_member(actor: Actor, membership_id: int) -> Membership:
    """The membership, with the tenant row locked so that two owners cannot leave at once.

    Owners are changed by owners only.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=actor.tenant.pk)
    membership = Membership.objects.filter(pk=membership_id).select_related("user").first()
    if membership is None:
        raise not_found("member")
    if membership.role == Role.OWNER:
        _require_grant(actor, Role.OWNER)
    return membership


def _require_other_owner(membership: Membership) -> None:
    if not Membership.objects.filter(role=Role.OWNER).exclude(pk=membership.pk).exists():
        raise ApplicationError(
            code="last_owner", status=409, detail="The last owner cannot leave; make somebody else an owner first."
        )


def _require_grant(actor: Actor, role: str) -> None:
    if not may_grant(actor.role, role):
        raise ApplicationError(
            code="permission_denied",
            status=403,
            detail=f"The role {actor.role!r} may not hand out or change the role {role!r}.",
        )


def _invalid(pointer: str, code: str, detail: str) -> ApplicationError:
    return ApplicationError(
        code="validation_failed",
        status=422,
        detail=f"The request is not valid at {pointer}.",
        errors=(FieldError(pointer=pointer, code=code, detail=detail),),
    )
