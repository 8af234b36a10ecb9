"""The gate of every API view: who may call it, and look-ups for which a foreign row does not exist."""

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models
from rest_framework.permissions import BasePermission

from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.permissions import Permission, permissions_of
from tenants.requests import TenantRequest

if TYPE_CHECKING:  # views import their default permissions while they are being defined
    from rest_framework.views import APIView

M = TypeVar("M", bound=models.Model)


class HasTenantPermission(BasePermission):
    """Reads the view's ``permission``: HTTP method -> Permission, or None for "any member".

    A method the view handles but does not declare is refused. `request.actor` and `request.tenant` are set by
    the tenant middleware, which also opened the tenant's scope.
    """

    def has_permission(self, request: TenantRequest, view: "APIView") -> bool:  # type: ignore[override]
        actor: Actor | None = request.actor
        if actor is None:
            if request.successful_authenticator is not None:
                raise ApplicationError(code="no_tenant", status=403, detail="You are not a member of any tenant.")
            return False
        method = "GET" if request.method == "HEAD" else str(request.method)
        if method == "OPTIONS" or not hasattr(view, method.lower()):
            return True  # the view answers 405
        declared: dict[str, Permission | None] = getattr(view, "permission", {})
        if method not in declared:
            raise ApplicationError(code="permission_denied", status=403, detail=f"{method} is not open to tenants.")
        wanted = declared[method]
        if wanted is None or actor.may(wanted):
            return True
        who = "This API key" if wanted in permissions_of(actor.role) else f"The role {actor.role!r}"
        raise ApplicationError(
            code="permission_denied", status=403, detail=f"{who} lacks the permission {wanted.value!r}."
        )


def not_found(noun: str) -> ApplicationError:
    """The one answer for a row that is missing and for a row of another tenant."""
    return ApplicationError(code="not_found", status=404, detail=f"There is no such {noun}.")


def access_row(rows: models.QuerySet[M], noun: str, **lookup: Any) -> M:
    """One row of the open tenant's scope, in one query. Raises the 404 of ``not_found``."""
    row = rows.filter(**lookup).first()
    if row is None:
        raise not_found(noun)
    return row
