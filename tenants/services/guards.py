"""What several services refuse: handing out more than one has, and rights that were lost meanwhile."""

from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import ApiKey, Membership, Tenant
from tenants.permissions import may_grant, permissions_of


def require_grant(actor: Actor, role: str) -> None:
    """Nobody hands out or changes a role with rights they lack; a key's scopes count. Raises ApplicationError 403.

    A key with a spend cap hands out none: whoever got one could spend what the cap forbids.
    """
    require_standing(actor)
    if actor.key is not None and actor.key.spend_cap is not None:
        detail = "An API key with a spend cap makes no keys and hands out no roles."
        raise ApplicationError(code="permission_denied", status=403, detail=detail)
    if not may_grant(actor.role, role) or not permissions_of(role) <= actor.permissions:
        raise ApplicationError(
            code="permission_denied",
            status=403,
            detail=f"The role {actor.role!r} may not hand out or change the role {role!r}."
            + (" This API key is narrower than its role." if may_grant(actor.role, role) else ""),
        )


def require_standing(actor: Actor) -> None:
    """Whoever hands out rights must still have theirs: they may have lost them since the request came in.

    Locks the tenant, as removing members and revoking keys do. Raises ApplicationError 403.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=actor.tenant.pk)
    if actor.key is not None:
        stands = ApiKey.objects.filter(tenant=tenant, pk=actor.key.pk, revoked_at=None).exists()
    else:
        stands = Membership.objects.filter(tenant=tenant, user=actor.user, role=actor.role).exists()
    if not stands:
        detail = "Your rights in this tenant have changed meanwhile."
        raise ApplicationError(code="permission_denied", status=403, detail=detail)
