"""Views about the lab as a whole, which a key that is bound to one project may not use."""

from rest_framework.request import Request
from rest_framework.views import APIView

from tenants.errors import ApplicationError
from tenants.requests import TenantRequest


class ForTheWholeTenant(APIView):
    """People, money, the audit log and webhooks are of every project: to a key of one they are refused (403)."""

    def check_permissions(self, request: TenantRequest | Request) -> None:
        super().check_permissions(request)  # type: ignore[arg-type]
        actor = getattr(request, "actor", None)
        if actor is not None and actor.project is not None:
            detail = f"This API key is bound to the project {actor.project.slug!r}; this is about the whole tenant."
            raise ApplicationError(code="permission_denied", status=403, detail=detail)
