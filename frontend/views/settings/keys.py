"""API keys: machines' credentials, shown once."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from frontend.refusals import Refusal, refusal_of
from frontend.views.page import frame, page
from frontend.views.settings.acts import acted, no_store
from frontend.views.settings.members import roles_offered
from tenants import services
from tenants.api.keys import KeyInput
from tenants.bodies import parse_body
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.selectors import key_list, project_list
from tenants.services import IssuedKey

BACK = "frontend:settings_keys"
SHOWN = 200  # the newest


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.KEYS_MANAGE)
def keys_page(request: PageRequest) -> HttpResponse:
    """Keys that work first; POST makes one and shows its text, which nobody can read again."""
    if request.method != "POST":
        return _shown(request)
    try:
        issued = _create(request)
    except ApplicationError as error:
        return _shown(request, form="new", refusal=refusal_of(error), status=error.status)
    return no_store(_shown(request, issued=issued))


@require_POST
@page(Permission.KEYS_MANAGE)
def key_revoke(request: PageRequest, key_id: UUID) -> HttpResponse:
    """End a key at once."""
    return acted(
        request,
        lambda: services.key_revoke(actor=request.actor, key_id=key_id),
        said="The key is revoked: the next request with it is refused.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form=str(key_id), refusal=refusal, status=status),
    )


def _create(request: PageRequest) -> IssuedKey:
    body = parse_body(KeyInput, _sent(request))
    return services.key_create(
        actor=request.actor,
        name=body.name,
        role=body.role,
        scopes=body.scopes,
        project=body.project,
        spend_cap=Decimal(body.spend_cap) if body.spend_cap is not None else None,
        expires_at=body.expires_at,
    )


def _sent(request: PageRequest) -> dict[str, Any]:
    """The form as the API takes it: an empty field is not sent, a last day ends at midnight UTC."""
    form = {name: request.POST.get(name, "").strip() for name in ("name", "role", "project", "spend_cap", "last_day")}
    last_day = form.pop("last_day")
    sent: dict[str, Any] = {name: value for name, value in form.items() if value or name == "name"}
    if scopes := request.POST.getlist("scopes"):
        sent["scopes"] = scopes
    if last_day:
        sent["expires_at"] = f"{last_day}T23:59:59Z"
    return sent


def _shown(
    request: PageRequest,
    *,
    form: str = "",
    refusal: Refusal | None = None,
    issued: IssuedKey | None = None,
    status: int = 200,
) -> HttpResponse:
    keys = list(key_list(request.actor).order_by("-created_at", "-pk")[:SHOWN])
    now = timezone.now()
    ended = {key.pk for key in keys if key.revoked_at or (key.expires_at and key.expires_at <= now)}
    context = frame(request, "settings") | {
        "section": "keys",
        "keys": sorted(keys, key=lambda key: key.pk in ended),
        "ended": ended,
        "roles": roles_offered(request.actor),
        "rights": sorted(request.actor.permissions),
        "key_projects": project_list(request.actor).filter(archived_at=None).order_by("name"),
        "issued": issued,
        "form": form,
        "refusal": refusal,
        "typed": request.POST.dict() if issued is None else {},
        "typed_scopes": request.POST.getlist("scopes") if issued is None else [],
        "origin": request.build_absolute_uri("/").rstrip("/"),
    }
    return render(request, "console/settings/keys.html", context, status=status)
