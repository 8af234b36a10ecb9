"""Requests as views get them: the tenant middleware has put the actor on them. For annotations only."""

from typing import TYPE_CHECKING

from django.http import HttpRequest
from rest_framework.request import Request

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails

    from tenants.identity import Actor
    from tenants.models import Tenant, User


class TenantRequest(Request):
    """Of an API view. Behind `HasTenantPermission`, ``actor`` and ``tenant`` are never None."""

    actor: "Actor"
    tenant: "Tenant"
    refused: Exception | None
    request_id: str


class PageRequest(HttpRequest):
    """Of a page, once it made sure that somebody is logged in and has a tenant."""

    actor: "Actor"
    tenant: "Tenant"
    user: "User"
    request_id: str
    htmx: "HtmxDetails"
    live_cursor: str  # of a whole page: what it shows is not older than that
