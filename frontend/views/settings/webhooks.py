"""Addresses that are told of events, and how the telling went."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from frontend.refusals import Refusal, refusal_of
from frontend.views.page import frame, page
from frontend.views.settings.acts import acted, no_store
from tenants.bodies import parse_body
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.webhooks import endpoints
from tenants.webhooks.api import WebhookInput
from tenants.webhooks.endpoints import IssuedSecret
from tenants.webhooks.events import SUBSCRIBABLE
from tenants.webhooks.selectors import delivery_get, delivery_list, endpoint_get, endpoint_list

BACK = "frontend:settings_webhooks"
DELIVERIES_SHOWN = 50


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.WEBHOOKS_MANAGE)
def webhooks_page(request: PageRequest) -> HttpResponse:
    """Endpoints and the newest deliveries; POST adds an endpoint and shows its signing secret once."""
    if request.method != "POST":
        return _shown(request)
    try:
        body = parse_body(WebhookInput, _sent(request))
        issued = endpoints.webhook_create(actor=request.actor, url=body.url, events=list(body.events))
    except ApplicationError as error:
        return _shown(request, form="new", refusal=refusal_of(error), status=error.status)
    return no_store(_shown(request, issued=issued))


@require_POST
@page(Permission.WEBHOOKS_MANAGE)
def webhook_change(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """Another address, other events."""

    endpoint_get(request.tenant, webhook_id)

    def change() -> None:
        body = parse_body(WebhookInput, _sent(request))
        endpoints.webhook_update(actor=request.actor, webhook_id=webhook_id, url=body.url, events=list(body.events))

    return _acted(request, webhook_id, change, "The endpoint is changed.")


@require_POST
@page(Permission.WEBHOOKS_MANAGE)
def webhook_switch(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """On or off."""
    on = request.POST.get("enabled") == "yes"
    return _acted(
        request,
        webhook_id,
        lambda: endpoints.webhook_update(actor=request.actor, webhook_id=webhook_id, enabled=on),
        "The endpoint is on." if on else "The endpoint is off; what was waiting is given up.",
    )


@require_POST
@page(Permission.WEBHOOKS_MANAGE)
def webhook_secret(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """A fresh signing secret, shown once."""
    issued = endpoints.webhook_rotate_secret(actor=request.actor, webhook_id=webhook_id)
    return no_store(_shown(request, issued=issued))


@require_POST
@page(Permission.WEBHOOKS_MANAGE)
def webhook_test(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """Send a test event."""
    return _acted(
        request,
        webhook_id,
        lambda: endpoints.webhook_test(actor=request.actor, webhook_id=webhook_id),
        "A test event is on its way; its delivery is listed below.",
    )


@require_POST
@page(Permission.WEBHOOKS_MANAGE)
def webhook_delete(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """Remove an endpoint with its deliveries."""
    return _acted(
        request,
        webhook_id,
        lambda: endpoints.webhook_delete(actor=request.actor, webhook_id=webhook_id),
        "The endpoint and its deliveries are deleted.",
    )


@require_POST
@page(Permission.WEBHOOKS_MANAGE)
def delivery_again(request: PageRequest, delivery_id: UUID) -> HttpResponse:
    """Send what was delivered or given up once more."""
    delivery = delivery_get(request.tenant, delivery_id)
    return _acted(
        request,
        delivery.endpoint_id,
        lambda: endpoints.webhook_redeliver(request.actor, delivery),
        "It is on its way again, under the same webhook-id.",
    )


def _acted(request: PageRequest, webhook_id: UUID, act: Callable[[], object], said: str) -> HttpResponse:
    return acted(
        request,
        act,
        said=said,
        back=BACK,
        show=lambda refusal, status: _shown(request, form=str(webhook_id), refusal=refusal, status=status),
    )


def _sent(request: PageRequest) -> dict[str, Any]:
    """No box is ticked: all events."""
    return {"url": request.POST.get("url", "").strip(), "events": request.POST.getlist("events")}


def _shown(
    request: PageRequest,
    *,
    form: str = "",
    refusal: Refusal | None = None,
    issued: IssuedSecret | None = None,
    status: int = 200,
) -> HttpResponse:
    deliveries = delivery_list(request.tenant).select_related("endpoint").order_by("-created_at", "-pk")
    context = frame(request, "settings") | {
        "section": "webhooks",
        "endpoints": endpoint_list(request.tenant).order_by("created_at", "pk"),
        "deliveries": deliveries[:DELIVERIES_SHOWN],
        "event_types": [kind.value for kind in SUBSCRIBABLE],
        "issued": issued,
        "form": form,
        "refusal": refusal,
        "typed": request.POST.dict() if issued is None else {},
        "typed_events": request.POST.getlist("events") if issued is None else [],
    }
    return render(request, "console/settings/webhooks.html", context, status=status)
