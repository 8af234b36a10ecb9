"""Reads of the audit log."""

from datetime import datetime

from django.db.models import Q, QuerySet

from tenants.audit.models import AuditEvent
from tenants.models import Tenant


def audit_list(
    tenant: Tenant | None,
    *,
    verb: str | None = None,
    actor: str | None = None,
    object_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[AuditEvent]:
    """Acts in a tenant, newest first; None: everywhere, for operators inside the platform's scope.

    ``verb``: one, or all of a noun with ``member.``; ``actor``: an e-mail address, a key's name, or an id;
    ``since`` is inclusive, ``until`` exclusive.
    """
    wanted = Q(tenant=tenant) if tenant is not None else Q()
    if verb:
        wanted &= Q(verb__startswith=verb) if verb.endswith(".") else Q(verb=verb)
    if actor:
        wanted &= Q(actor_name__iexact=actor) | Q(actor_id=actor)
    if object_id:
        wanted &= Q(object_id=object_id)
    if since:
        wanted &= Q(occurred_at__gte=since)
    if until:
        wanted &= Q(occurred_at__lt=until)
    return AuditEvent.objects.filter(wanted).order_by("-occurred_at", "-pk")
