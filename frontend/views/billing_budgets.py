"""Budgets and limits: what a lab allows itself, what the platform allows it, and what was told."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from frontend.refusals import refusal_of
from frontend.views.page import answer, frame, page
from tenants.access import access_row
from tenants.billing.budgets import services as budgets
from tenants.billing.budgets.api import BudgetChange, BudgetInput
from tenants.billing.budgets.reads import alert_list, budget_list, budget_states
from tenants.billing.models import Budget
from tenants.billing.usage.periods import month_of
from tenants.bodies import parse_body
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.quotas.outputs import quota_lines
from tenants.requests import PageRequest
from tenants.selectors import project_for, project_list

_ALERTS = 50
PAGE, PART = "console/billing/budgets.html", "console/billing/budgets_part.html"


@require_http_methods(["GET", "HEAD", "POST"])
@page(Permission.BILLING_READ)
def budgets_page(request: PageRequest) -> HttpResponse:
    """Budgets with what is spent of them, limits, alerts; POST sets a new budget."""
    if request.method == "POST":
        return _done(request, "new", lambda: _create(request), "The budget is set.")
    return answer(request, PAGE, PART, _context(request))


@require_POST
@page(Permission.BILLING_MANAGE)
def budget_change(request: PageRequest, budget_id: UUID) -> HttpResponse:
    """Change the amount, or what happens at 100 %, of the version that was seen."""

    def change() -> None:
        body = parse_body(BudgetChange, _sent(request))
        budget = _seen(request, budget_id)
        amount = Decimal(body.amount) if body.amount is not None else None
        budgets.budget_change(by=request.actor, budget=budget, amount=amount, hard=body.hard)

    return _done(request, str(budget_id), change, "The budget is changed. It is in force now.")


@require_POST
@page(Permission.BILLING_MANAGE)
def budget_end(request: PageRequest, budget_id: UUID) -> HttpResponse:
    """End the version that was seen."""
    return _done(
        request,
        str(budget_id),
        lambda: budgets.budget_end(by=request.actor, budget=_seen(request, budget_id)),
        "The budget is ended. Its alerts stay on record.",
    )


def _create(request: PageRequest) -> None:
    body = parse_body(BudgetInput, _sent(request) | {"project": request.POST.get("project") or None})
    project = project_for(request.actor, body.project) if body.project is not None else None
    budgets.budget_create(by=request.actor, project=project, amount=Decimal(body.amount), hard=body.hard)


def _sent(request: PageRequest) -> dict[str, Any]:
    """The fields of a form as the API takes them."""
    return {"amount": request.POST.get("amount", "").strip(), "hard": request.POST.get("hard") == "yes"}


def _seen(request: PageRequest, budget_id: UUID) -> Budget:
    """The locked budget. Raises ApplicationError 412 if it is not the version whose form this is."""
    budget = budgets.budget_for_update(request.tenant, budget_id)
    if request.POST.get("version") != str(budget.version):
        raise ApplicationError(
            code="stale",
            status=412,
            detail="The budget was changed since this page was loaded. The present one is shown: look and try again.",
        )
    return budget


def _done(request: PageRequest, form: str, act: Callable[[], None], said: str) -> HttpResponse:
    """Act and go back to the page; a refusal is shown beside the form it is about, with what was typed."""
    if not request.actor.may(Permission.BILLING_MANAGE):
        raise PermissionDenied
    if form != "new":
        access_row(budget_list(request.tenant), "budget", pk=form)
    try:
        with transaction.atomic():
            act()
    except ApplicationError as error:
        refused = {"form": form, "refusal": refusal_of(error), "typed": request.POST.dict()}
        return answer(request, PAGE, PART, _context(request) | {"refused": refused}, status=error.status)
    messages.success(request, said)
    return redirect("frontend:budgets")


def _context(request: PageRequest) -> dict[str, Any]:
    """A fixed number of queries, however many budgets and projects there are."""
    month = month_of(timezone.now())
    own = list(budget_list(request.tenant).order_by("project__name", "created_at"))
    projects = list(project_list(request.actor).order_by("name"))
    taken = {budget.project_id for budget in own}
    return frame(request, "usage") | {
        "tab": "budgets",
        "budgets": budget_states(own, month),
        "month_start": month,
        "free_projects": [one for one in projects if one.archived_at is None and one.pk not in taken],
        "whole_free": None not in taken,
        "alerts": list(alert_list(request.tenant)[:_ALERTS]),
        "limits": quota_lines(request.tenant, projects) if request.actor.may(Permission.QUOTAS_READ) else [],
    }
