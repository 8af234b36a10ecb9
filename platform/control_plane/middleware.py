"""What every request gets: an id, the actor behind it, and its tenant scope, open until the request is answered."""

import re
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from ipaddress import ip_address

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse

from control_plane.logs import request_id_now
from tenants.audit.services import Origin, origin_now
from tenants.identity import Actor, CredentialRefused, NotAMember, actor_for_key, actor_for_user
from tenants.models import Tenant, User
from tenants.scope import project_scope, tenant_scope


class IdentifiedRequest(HttpRequest):
    """For annotations: what these two put on a request."""

    request_id: str
    actor: Actor | None
    tenant: Tenant | None
    refused: Exception | None
    user: User | AnonymousUser


GetResponse = Callable[[HttpRequest], HttpResponse]

SESSION_TENANT = "tenant_id"
_KEY_SCHEMES = frozenset({"bearer", "api-key"})
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


class RequestIdMiddleware:
    """Names the request in its answer and in every log line; a caller's own `X-Request-ID` is kept if it is tame."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: IdentifiedRequest) -> HttpResponse:
        asked = request.headers.get("X-Request-ID", "")
        request.request_id = asked if _ACCEPTABLE_ID.fullmatch(asked) else uuid.uuid4().hex
        token = request_id_now.set(request.request_id)
        try:
            response = self.get_response(request)
        finally:
            request_id_now.reset(token)
        response["X-Request-ID"] = request.request_id
        return response


class TenantMiddleware:
    """Sets `request.actor` and `request.tenant` (None where nobody is known) and opens the tenant's scope.

    An `Authorization` header decides alone: a bad key never falls back to the session. `request.refused` holds
    why nobody is known; the API's authentication answers with it, pages ignore it.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: IdentifiedRequest) -> HttpResponse:
        request.refused = None
        try:
            request.actor = _actor(request)
        except (CredentialRefused, NotAMember) as reason:
            request.actor, request.refused = None, reason
        request.tenant = request.actor.tenant if request.actor else None
        with (
            tenant_scope(request.tenant) if request.tenant else nullcontext(),
            project_scope(_bound_to(request.actor)),
        ):
            return self.get_response(request)


def _bound_to(actor: Actor | None) -> uuid.UUID | None:
    return actor.project.pk if actor is not None and actor.project is not None else None


class AuditOriginMiddleware:
    """Tells the audit log where the request comes from while it is answered."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: IdentifiedRequest) -> HttpResponse:
        token = origin_now.set(Origin(address=client_address(request), request_id=request.request_id))
        try:
            return self.get_response(request)
        finally:
            origin_now.reset(token)


def client_address(request: HttpRequest) -> str | None:
    """The client's IP address as the server saw it; None behind a unix socket."""
    try:
        return str(ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return None


def _actor(request: IdentifiedRequest) -> Actor | None:
    header, wanted = request.headers.get("Authorization"), request.headers.get("X-Tenant")
    if header is not None:
        scheme, _, text = header.strip().partition(" ")
        if scheme.lower() not in _KEY_SCHEMES:
            raise CredentialRefused
        actor = actor_for_key(text.strip())
        if wanted is not None and wanted.lower() != str(actor.tenant.pk):
            raise NotAMember
        return actor
    if not isinstance(request.user, User):
        return None
    remembered = request.session.get(SESSION_TENANT)
    return actor_for_user(request.user, wanted=wanted, remembered=remembered)
