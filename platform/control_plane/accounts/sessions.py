"""A person's log-in sessions: where from, since when, and ending them."""

from typing import Any

from allauth.usersessions.models import UserSession
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LogoutView
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from control_plane.accounts.trail import account_audit
from tenants.access_changes import access_changed
from tenants.models import User

# The first mark that is found decides: most browsers name others too, for the sake of old pages.
_BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS = (
    *(("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad")),
    *(("Windows", "Windows"), ("Mac OS", "macOS"), ("Linux", "Linux")),
)


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def sessions_page(request: HttpRequest) -> HttpResponse:
    """List them; POST ends the one whose ``session`` is given, without it every other than this one."""
    assert isinstance(request.user, User)  # login_required
    if request.method == "POST":
        ended = _chosen(request, request.user)
        for session in ended:
            session.end()
        account_audit(request.user, "account.sessions_ended", count=len(ended))
        access_changed([request.user.pk])
        return HttpResponseRedirect(reverse("usersessions_list"))
    rows = sorted(UserSession.objects.purge_and_list(request.user), key=lambda row: row.created_at, reverse=True)
    return render(request, "account/sessions.html", {"sessions": [(row, device(row.user_agent)) for row in rows]})


class LogOutView(LogoutView):
    """Ends this session; what the browser still has open ends with it."""

    next_page = "/login/"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        user = request.user
        response = super().post(request, *args, **kwargs)
        if isinstance(user, User):  # after the session is gone: its sockets look again now
            access_changed([user.pk])
        return response


def device(user_agent: str) -> str:
    """What a person would call it, as far as a browser tells the truth: "Firefox on Linux"."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    return " on ".join(part for part in (browser, system) if part) or user_agent[:60] or "an unknown browser"


def _chosen(request: HttpRequest, user: User) -> list[UserSession]:
    """Sessions of this user only: a foreign id is a missing one."""
    others = [row for row in UserSession.objects.filter(user=user) if not row.is_current()]
    wanted = request.POST.get("session")
    if wanted is None:
        return others
    chosen = [row for row in others if str(row.pk) == wanted]
    if not chosen:
        raise Http404("There is no such session.")
    return chosen
