"""What a member sees first: what runs, waits and has ended, what it costs, and what needs attention."""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.home.attention import matters
from frontend.home.snippets import snippets_context
from frontend.home.spend import spend_figure
from frontend.home.tiles import WINDOW_MIN, device_share, newest_success, this_month
from frontend.home.work import work_of
from frontend.views.page import answer, frame, page, wants_part
from jobs.selectors.runtime import runtime_report
from tenants.billing.budgets.reads import budget_list, budget_states
from tenants.billing.usage.periods import month_of
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.JOBS_READ)
def home(request: PageRequest) -> HttpResponse:
    """The whole page, or for its script what changes on it."""
    context = _live(request)
    if not wants_part(request):
        context |= frame(request, "home") | _still(request, context)
    return answer(request, "console/home/page.html", "console/home/part.html", context)


def _live(request: PageRequest) -> dict[str, Any]:
    now, actor = timezone.now(), request.actor
    work, budgets = work_of(request.tenant, now=now), list(budget_list(request.tenant))
    runtime = runtime_report() if actor.may(Permission.RUNTIME_READ) else None
    states = budget_states(budgets, month_of(now)) if budgets else []
    return {
        "now": now,
        "tenant": request.tenant,
        "may": {permission.name.lower(): True for permission in actor.permissions},
        "work": work,
        "month": this_month(request.tenant, now),
        "success": newest_success(request.tenant),
        "share": device_share(request.tenant) if actor.may(Permission.RUNTIME_READ) else None,
        "window_min": WINDOW_MIN,
        "matters": matters(actor, work, states, runtime, now=now),
        "is_new": request.tenant.jobs_numbered == 0,
    }


def _still(request: PageRequest, live: dict[str, Any]) -> dict[str, Any]:
    """What does not change while the page is open."""
    told: dict[str, Any] = {"figure": spend_figure(live["month"], request.tenant.currency)}
    if request.actor.may(Permission.JOBS_WRITE):
        told |= snippets_context(request)
    return told
