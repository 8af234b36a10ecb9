"""Log-in sessions: which of their tenants a user is looking at."""

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from control_plane.middleware import SESSION_TENANT
from tenants.identity import NotAMember, actor_for_user
from tenants.models import User


@login_required
@require_POST
def switch_tenant(request: HttpRequest) -> HttpResponse:
    """Remember the posted ``tenant`` for this session; 403 unless the user is a member. Redirects to ``next``."""
    assert isinstance(request.user, User)  # login_required
    try:
        actor = actor_for_user(request.user, wanted=request.POST.get("tenant", ""))
    except NotAMember:
        raise PermissionDenied from None
    if actor is None:
        raise PermissionDenied
    request.session[SESSION_TENANT] = str(actor.tenant.pk)
    target = request.POST.get("next", "/")
    safe = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return HttpResponseRedirect(target if safe else "/")
