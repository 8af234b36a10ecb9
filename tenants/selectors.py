"""Reads of the tenants app, inside the actor's scope."""

from django.db.models import QuerySet

from tenants.identity import Actor
from tenants.models import ApiKey, Membership
from tenants.permissions import Permission


def member_list(actor: Actor) -> QuerySet[Membership]:
    """Everybody in the actor's tenant."""
    return Membership.objects.filter(tenant=actor.tenant).select_related("user")


def key_list(actor: Actor) -> QuerySet[ApiKey]:
    """The tenant's API keys; those who do not manage members see the ones they made themselves."""
    keys = ApiKey.objects.filter(tenant=actor.tenant).select_related("created_by")
    if actor.may(Permission.MEMBERS_MANAGE):
        return keys
    return keys.filter(created_by=actor.user) if actor.user else keys.none()
