"""Who is asking, for which tenant, in which role: by API key or by log-in."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from tenants.models import ApiKey, Membership, Project, Tenant, User
from tenants.permissions import Permission, narrowed, permissions_of
from tenants.scope import platform_scope

KEY_TAG = "jnx"
_LAST_USED_EVERY = timedelta(minutes=1)  # one write per key and minute, however busy it is
_NO_SECRET_SHA256 = hashlib.sha256(b"").hexdigest()


class CredentialRefused(Exception):
    """The API key is malformed, unknown, expired or revoked; which of them is not told."""


class NotAMember(Exception):
    """The named tenant does not exist or is not this user's; which of them is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A user or an API key acting in one tenant. ``user`` is None when the key's maker is gone.

    A key may be narrower than its role: by its scopes, and by the one project it is bound to.
    """

    tenant: Tenant
    role: str
    user: User | None
    key: ApiKey | None = None

    @property
    def permissions(self) -> frozenset[Permission]:
        return narrowed(self.role, self.key.scopes) if self.key else permissions_of(self.role)

    @property
    def project(self) -> Project | None:
        """The only project whose jobs exist for this actor; None: all of the tenant's."""
        return self.key.project if self.key else None

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions


def new_secret() -> tuple[str, str, str]:
    """A fresh credential: (prefix, SHA-256 of the secret, text shown once)."""
    prefix, secret = secrets.token_hex(6), secrets.token_hex(32)
    return prefix, _sha256(secret), f"{KEY_TAG}_{prefix}_{secret}"


def actor_for_key(text: str) -> Actor:
    """The actor behind ``jnx_<prefix>_<secret>``. Raises CredentialRefused.

    A fast hash is right for a 256-bit secret; the comparison takes the same time for unknown prefixes.
    """
    tag, _, rest = text.partition("_")
    prefix, _, secret = rest.partition("_")
    with platform_scope():
        keys = ApiKey.objects.select_related("tenant", "created_by", "project")
        key = keys.filter(prefix=prefix).first() if prefix.isascii() and prefix.isalnum() else None
    genuine = hmac.compare_digest(_sha256(secret), key.secret_sha256 if key else _NO_SECRET_SHA256)
    if key is None or tag != KEY_TAG or not genuine or not _is_live(key):
        raise CredentialRefused
    _touch(key)
    return Actor(tenant=key.tenant, role=key.role, user=key.created_by, key=key)


def actor_for_user(user: User, wanted: str | UUID | None = None, remembered: str | None = None) -> Actor | None:
    """A logged-in user's actor: in tenant ``wanted``, else in the remembered one, else in their first.

    None if the user belongs to no tenant. Raises NotAMember if ``wanted`` is not one of theirs.
    """
    memberships = {str(row.tenant_id): row for row in memberships_of(user)}
    if wanted is not None and str(wanted).lower() not in memberships:
        raise NotAMember
    if not memberships:
        return None
    first = next(iter(memberships))
    chosen = memberships.get(str(wanted or remembered).lower(), memberships[first])
    return Actor(tenant=chosen.tenant, role=chosen.role, user=user)


def memberships_of(user: User) -> list[Membership]:
    """Every tenant of a user, oldest membership first: the one read of a user across tenants."""
    with platform_scope():
        return list(Membership.objects.filter(user=user).select_related("tenant").order_by("created_at", "pk"))


def _is_live(key: ApiKey) -> bool:
    now = timezone.now()
    maker_active = key.created_by is None or key.created_by.is_active
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now) and maker_active


def _touch(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is not None and now - key.last_used_at < _LAST_USED_EVERY:
        return
    with platform_scope():
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
