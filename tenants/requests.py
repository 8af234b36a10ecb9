"""The request as API views get it: the tenant middleware has put the actor on it."""

from typing import TYPE_CHECKING

from rest_framework.request import Request

if TYPE_CHECKING:
    from tenants.identity import Actor
    from tenants.models import Tenant


class TenantRequest(Request):
    """For annotations. Behind `HasTenantPermission`, ``actor`` and ``tenant`` are never None."""

    actor: "Actor"
    tenant: "Tenant"
    refused: Exception | None
    request_id: str
