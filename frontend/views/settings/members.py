"""Who belongs to the lab, and whom it has invited."""

from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from frontend.refusals import Refusal
from frontend.views.page import frame, page
from frontend.views.settings.acts import acted
from tenants import services
from tenants.access import access_row
from tenants.api.invitations import InvitationInput
from tenants.api.members import MemberRoleInput
from tenants.bodies import parse_body
from tenants.identity import Actor
from tenants.models import Role
from tenants.permissions import Permission, may_grant
from tenants.requests import PageRequest
from tenants.selectors import invitation_list, member_list

BACK = "frontend:settings_members"
ROLE_WORDS = {
    Role.OWNER: "everything, and makes owners",
    Role.ADMIN: "everything but making owners",
    Role.RESEARCHER: "jobs, datasets and own API keys",
    Role.VIEWER: "reads, changes nothing",
    Role.BILLING: "usage, budgets and invoices",
}


@require_safe
@page(Permission.MEMBERS_READ)
def settings_home(request: PageRequest) -> HttpResponse:
    """The settings begin with the members."""
    return redirect(BACK)


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.MEMBERS_READ)
def members_page(request: PageRequest) -> HttpResponse:
    """Members and open invitations; POST invites an address."""
    if request.method != "POST":
        return _shown(request)
    if not request.actor.may(Permission.MEMBERS_MANAGE):
        raise PermissionDenied
    return acted(
        request,
        lambda: _invite(request),
        said="The invitation is on its way. Its link works once, for seven days.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form="invite", refusal=refusal, status=status),
    )


@require_POST
@page(Permission.MEMBERS_MANAGE)
def member_role(request: PageRequest, member_id: int) -> HttpResponse:
    """Give a member another role."""

    access_row(member_list(request.actor), "member", pk=member_id)

    def change() -> None:
        body = parse_body(MemberRoleInput, {"role": request.POST.get("role", "")})
        services.member_set_role(actor=request.actor, membership_id=member_id, role=body.role)

    return acted(
        request,
        change,
        said="The role is changed. Keys that would be stronger than it are revoked.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form=str(member_id), refusal=refusal, status=status),
    )


@require_POST
@page(Permission.MEMBERS_MANAGE)
def member_remove(request: PageRequest, member_id: int) -> HttpResponse:
    """Take a member out of the lab."""
    return acted(
        request,
        lambda: services.member_remove(actor=request.actor, membership_id=member_id),
        said="The member is removed and the keys made by them are revoked.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form=str(member_id), refusal=refusal, status=status),
    )


@require_POST
@page(Permission.MEMBERS_MANAGE)
def invitation_revoke(request: PageRequest, invitation_id: UUID) -> HttpResponse:
    """Take an invitation back."""
    return acted(
        request,
        lambda: services.invitation_revoke(actor=request.actor, invitation_id=invitation_id),
        said="The invitation is taken back; its link works no more.",
        back=BACK,
        show=lambda refusal, status: _shown(request, form="invite", refusal=refusal, status=status),
    )


def _invite(request: PageRequest) -> None:
    sent = {name: request.POST.get(name, "").strip() for name in ("email", "role")}
    body = parse_body(InvitationInput, sent)
    services.invitation_create(
        actor=request.actor,
        email=body.email,
        role=body.role,
        link=lambda token: request.build_absolute_uri(reverse("invitation_accept", args=[token])),
    )


def roles_offered(actor: Actor) -> list[tuple[str, str]]:
    """(role, what it may do) of those that the actor may hand out."""
    return [(role.value, words) for role, words in ROLE_WORDS.items() if may_grant(actor.role, role)]


def _shown(request: PageRequest, *, form: str = "", refusal: Refusal | None = None, status: int = 200) -> HttpResponse:
    """``form``: the one that ``refusal`` is about."""
    open_ones = invitation_list(request.actor).filter(accepted_at=None, revoked_at=None)
    context: dict[str, Any] = frame(request, "settings") | {
        "section": "members",
        "members": member_list(request.actor).order_by("created_at", "pk"),
        "invitations": open_ones.order_by("-created_at"),
        "roles": roles_offered(request.actor),
        "now": timezone.now(),
        "form": form,
        "refusal": refusal,
        "typed": request.POST.dict(),
    }
    return render(request, "console/settings/members.html", context, status=status)
