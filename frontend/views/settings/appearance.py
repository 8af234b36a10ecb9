"""How the console looks in this browser, and how one's own account is protected."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.views.page import frame, page
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.MEMBERS_READ)  # every role has it
def appearance_page(request: PageRequest) -> HttpResponse:
    """The theme is the browser's own: it is kept there, and never sent."""
    return render(request, "console/settings/appearance.html", frame(request, "settings") | {"section": "appearance"})
