"""Writing an act down, in the transaction of the act itself: what is rolled back was not done."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.db.models import Model

from tenants.audit.models import ActorKind, AuditEvent
from tenants.identity import Actor
from tenants.models import Tenant, User
from tenants.scope import platform_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a request came from. The middleware sets it, so services need not carry it."""

    address: str | None = None
    request_id: str = ""


_NOWHERE = Origin()
origin_now: ContextVar[Origin] = ContextVar("audit_origin", default=_NOWHERE)  # it is frozen


def audit(
    *,
    by: Actor | User | None,
    verb: str,
    target: Model,
    tenant: Tenant | None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    reason: str = "",
    name: str | None = None,
) -> None:
    """Record that ``by`` did ``verb`` to ``target``.

    ``by``: an Actor is a member or key of the tenant, a User is an operator of the platform, None is the platform
    itself. ``name`` is how people know the target (default: its text). ``before`` and ``after`` hold the changed
    fields as JSON values, never a secret. Call it inside the transaction of the change.
    """
    kind, actor_id, actor_name = _who(by)
    origin = origin_now.get()
    with platform_scope():
        AuditEvent.objects.create(
            tenant=tenant,
            actor_kind=kind,
            actor_id=actor_id,
            actor_name=actor_name[:254],
            verb=verb,
            object_type=target._meta.model_name or "",
            object_id=str(target.pk),
            object_name=(str(target) if name is None else name)[:200],
            before=before,
            after=after,
            reason=reason[:500],
            address=origin.address,
            request_id=origin.request_id,
        )


def _who(by: Actor | User | None) -> tuple[ActorKind, str, str]:
    if by is None:
        return ActorKind.SYSTEM, "", "platform"
    if isinstance(by, User):
        return ActorKind.OPERATOR, str(by.pk), by.email
    if by.key is not None:
        return ActorKind.KEY, str(by.key.pk), f"{by.key.name} ({by.key.prefix})"
    return (ActorKind.USER, str(by.user.pk), by.user.email) if by.user else (ActorKind.SYSTEM, "", "platform")
