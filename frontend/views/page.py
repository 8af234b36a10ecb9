"""What every page needs: a logged-in member with the right permission, and the frame around the content."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.messages import get_messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django_htmx.http import trigger_client_event

from frontend.shell import shell_of
from jobs.selectors.changes import cursor_of, signatures
from tenants.errors import ApplicationError
from tenants.identity import memberships_of
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.selectors import project_list

View = Callable[..., HttpResponseBase]


def page(permission: Permission) -> Callable[[View], View]:
    """Ask for a log-in, then for ``permission`` in the open tenant; a foreign row is a missing page."""

    def decorate(view: View) -> View:
        @login_required
        @wraps(view)
        def guarded(request: PageRequest, **arguments: Any) -> HttpResponseBase:
            if request.actor is None or not request.actor.may(permission):
                raise PermissionDenied
            if request.method == "GET" and not wants_part(request):
                request.live_cursor = cursor_of(signatures(request.tenant, request.actor.permissions))
            try:
                return view(request, **arguments)
            except ApplicationError as error:
                if error.status == 404:
                    raise Http404(error.detail) from error
                raise

        return guarded

    return decorate


def frame(request: PageRequest, name: str) -> dict[str, Any]:
    """Context of the top bar and the navigation. ``live_cursor``: what the page shows is not older than that."""
    return {
        "page": name,
        "tenant": request.tenant,
        "role": request.actor.role,
        "may": {permission.name.lower(): True for permission in request.actor.permissions},
        "memberships": memberships_of(request.user),
        "own_projects": project_list(request.actor).filter(archived_at=None).order_by("name"),
        "shell": shell_of(request.actor),
        "live_cursor": getattr(request, "live_cursor", ""),
    }


def wants_part(request: PageRequest) -> bool:
    """Whether htmx asks for a part of the page that is open; False for whole pages, those it puts back included."""
    asked = request.htmx
    return bool(asked) and not asked.boosted and not asked.history_restore_request


def answer(
    request: PageRequest, template: str, part: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """The whole page, or for htmx only ``part``, a template that the page includes.

    What was just done (Django's messages) is told with a part as an event, since it has no place for toasts.
    """
    alone = wants_part(request)
    response = render(request, part if alone else template, context, status=status)
    patch_vary_headers(response, ("HX-Request",))
    if alone and request.method == "POST":
        told = [str(message) for message in get_messages(request)]
        if told:
            trigger_client_event(response, "joynexus:toast", {"texts": told})
    return response
