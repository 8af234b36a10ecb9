"""Writes of API keys: never stronger than who makes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from tenants.access import access_row
from tenants.audit.services import audit
from tenants.errors import ApplicationError, invalid
from tenants.identity import Actor, new_secret
from tenants.models import ApiKey, Project, Tenant
from tenants.permissions import narrowed, permissions_of
from tenants.selectors import key_list, project_for
from tenants.services.guards import require_grant, require_standing


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A fresh API key and its text, which nobody can read again."""

    row: ApiKey
    text: str


@transaction.atomic
def key_create(
    *,
    actor: Actor,
    name: str,
    role: str,
    scopes: Sequence[str] = (),
    project: str | None = None,
    spend_cap: Decimal | None = None,
    expires_at: datetime | None = None,
) -> IssuedKey:
    """Issue an API key that can do no more than its maker.

    ``scopes`` narrow the role, ``project`` (a slug) binds it, ``spend_cap`` is what its jobs may cost in all, in the
    tenant's currency. Raises ApplicationError 403 for more than the actor has, 422 for what makes no sense.
    """
    _require_scopes(actor, role, scopes)
    bound = _bound_project(actor, project)
    _require_end(actor, expires_at)
    _require_cap(actor, spend_cap)
    prefix, secret_sha256, text = new_secret()
    row = ApiKey.objects.create(
        tenant=actor.tenant,
        name=name,
        role=role,
        scopes=sorted(set(scopes)),
        project=bound,
        spend_cap=spend_cap,  # type: ignore[misc]  # the stubs take a custom field for never null
        prefix=prefix,
        secret_sha256=secret_sha256,
        created_by=actor.user,
        expires_at=expires_at,
    )
    audit(by=actor, verb="key.created", target=row, name=_label(row), tenant=actor.tenant, after=_facts(row))
    return IssuedKey(row=row, text=text)


@transaction.atomic
def key_revoke(*, actor: Actor, key_id: object) -> None:
    """End a key at once; ending it twice is the same. Raises 404 for keys the actor may not see.

    Under the tenant's lock: a key that is just making another one has either made it, or never will.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=actor.tenant.pk)
    key = access_row(key_list(actor), "API key", pk=key_id)
    if ApiKey.objects.filter(tenant=actor.tenant, pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
        audit(by=actor, verb="key.revoked", target=key, name=_label(key), tenant=actor.tenant)


def _require_scopes(actor: Actor, role: str, scopes: Sequence[str]) -> None:
    """A key without scopes has all of its role; one with scopes needs only those to be the maker's."""
    if not scopes:
        require_grant(actor, role)
        return
    require_standing(actor)
    if unknown := sorted(set(scopes) - permissions_of(role)):
        allowed = ", ".join(sorted(permissions_of(role)))
        raise invalid(
            "/scopes", "not_of_role", f"{unknown[0]!r} is no right of the role {role!r}; allowed: {allowed}."
        )
    if excess := sorted(narrowed(role, scopes) - actor.permissions):
        detail = f"You lack the permission {excess[0].value!r}, so your key cannot have it."
        raise ApplicationError(code="permission_denied", status=403, detail=detail)


def _bound_project(actor: Actor, slug: str | None) -> Project | None:
    """The project by its slug; a bound key makes keys of its own project only."""
    return project_for(actor, slug) if slug is not None or actor.project is not None else None


def _require_end(actor: Actor, expires_at: datetime | None) -> None:
    if expires_at is not None and expires_at <= timezone.now():
        raise invalid("/expires_at", "in_the_past", f"It must lie in the future; got {expires_at.isoformat()}.")
    own = actor.key.expires_at if actor.key else None
    if own is not None and (expires_at is None or expires_at > own):
        raise invalid("/expires_at", "outlives_its_maker", f"A key made by this key ends by {own.isoformat()}.")


def _require_cap(actor: Actor, spend_cap: Decimal | None) -> None:
    if spend_cap is not None and spend_cap <= 0:
        raise invalid("/spend_cap", "not_positive", f"It must be more than 0; got {spend_cap}.")
    if actor.key is not None and actor.key.spend_cap is not None:  # or its cap would be worth nothing
        detail = "An API key with a spend cap makes no keys."
        raise ApplicationError(code="permission_denied", status=403, detail=detail)


def _label(key: ApiKey) -> str:
    return f"{key.name} ({key.prefix})"


def _facts(key: ApiKey) -> dict[str, object]:
    return {
        "role": key.role,
        "scopes": key.scopes,
        "project": key.project.slug if key.project else None,
        "spend_cap": f"{key.spend_cap:f}" if key.spend_cap is not None else None,
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
    }
