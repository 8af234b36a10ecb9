"""Django REST framework's view of who is asking. The work is done by `TenantMiddleware`; this turns it into 401s."""

from typing import Any

from rest_framework import authentication
from rest_framework.exceptions import AuthenticationFailed

from tenants.errors import ApplicationError
from tenants.identity import NotAMember
from tenants.models import ApiKey, User
from tenants.requests import TenantRequest


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer jnx_…` or `Authorization: Api-Key jnx_…`."""

    def authenticate(self, request: TenantRequest) -> tuple[User | None, ApiKey | None] | None:  # type: ignore[override]
        if "Authorization" not in request.headers:
            return None
        _refuse_foreign_tenant(request)
        actor = request.actor
        if actor is None:
            raise AuthenticationFailed("The API key is not valid, has expired or was revoked.")
        return actor.user, actor.key

    def authenticate_header(self, request: TenantRequest) -> str:  # type: ignore[override]
        return 'Bearer realm="joynexus"'


class SessionAuthentication(authentication.SessionAuthentication):
    """A logged-in browser, with CSRF protection. The tenant is the `X-Tenant` header's, the session's or the first."""

    def authenticate(self, request: TenantRequest) -> tuple[Any, None] | None:  # type: ignore[override]
        answer = super().authenticate(request)
        if answer is not None:
            _refuse_foreign_tenant(request)
        return answer


def _refuse_foreign_tenant(request: TenantRequest) -> None:
    if isinstance(request.refused, NotAMember):
        raise ApplicationError(
            code="not_a_member", status=403, detail="X-Tenant: you are not a member of such a tenant."
        )
