"""Usage: what a month has come to, against what, and for what."""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.figures import figure_json
from frontend.usage.choice import By, Choice, Sort, Split, choice_of
from frontend.usage.days import day_figure
from frontend.usage.meters import title_of
from frontend.usage.month import month_read, months_of
from frontend.usage.prices import short_prices
from frontend.usage.table import usage_table
from frontend.views.page import answer, frame, page
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.ranking import group_label
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.requests import PageRequest

_BY_WORDS = {By.METER: "Meter", By.PROJECT: "Project", By.JOB: "Job", By.KEY: "API key", By.DAY: "Day"}
_SPLIT_WORDS = {Split.METER: "Service", Split.PROJECT: "Project", Split.JOB: "Job"}


@require_safe
@page(Permission.BILLING_READ)
def usage_page(request: PageRequest) -> HttpResponse:
    """The month as bars by day, against its budget, and as a table; all of it chosen by the address."""
    now = timezone.now()
    choice = choice_of(request.GET, month_of(now))
    month = month_read(request.tenant, choice.month, now)
    budget = month.budget.budget.amount if month.budget else None
    figure = day_figure(
        request.tenant, choice, month.totals, today=now.date(), budget=budget, projection=month.projection
    )
    context = frame(request, "usage") | {
        "tab": "usage",
        "choice": choice,
        "month": month,
        "months": list(months_of(month.first, month_of(now))),
        "figure": figure_json(figure, height="l"),
        "table": usage_table(request.tenant, choice),
        "prices": short_prices(request.tenant, now) if choice.by == By.METER else {},
        **_links(request.tenant, choice),
    }
    return answer(request, "console/usage/usage.html", "console/usage/month.html", context)


def _links(tenant: Tenant, choice: Choice) -> dict[str, Any]:
    """Where every control of the page leads."""
    return {
        "bys": [
            (words, choice.link(by=by, sort=_sort(by, choice.sort)), by == choice.by)
            for by, words in _BY_WORDS.items()
        ],
        "by_word": _BY_WORDS[choice.by],
        "by_phrase": "API key" if choice.by == By.KEY else _BY_WORDS[choice.by].lower(),
        "splits": [(words, choice.link(split=split), split == choice.split) for split, words in _SPLIT_WORDS.items()],
        "by_name": "" if choice.by == By.JOB else choice.link(sort=Sort.NAME),
        "by_amount": choice.link(sort=Sort.SMALLEST if choice.sort == Sort.LARGEST else Sort.LARGEST),
        "filters": _filters(tenant, choice),
        "newer": choice.link(page=choice.page - 1),
        "older": choice.link(page=choice.page + 1),
    }


def _sort(by: By, sort: Sort) -> Sort:
    """Days are best in their order; jobs cannot be sorted by name."""
    if by == By.DAY:
        return Sort.NAME
    return Sort.LARGEST if sort == Sort.NAME else sort


def _filters(tenant: Tenant, choice: Choice) -> list[tuple[str, str, str]]:
    """What the table is narrowed to: what, which, and the address without it."""
    found: list[tuple[str, str, str]] = []
    if choice.project is not None:
        label = group_label(tenant, "project", choice.project)
        found.append(("Project", label or "unknown", choice.link(project=None)))
    if choice.key is not None:
        found.append(("API key", group_label(tenant, "key", choice.key) or "unknown", choice.link(key=None)))
    if choice.meter is not None:
        found.append(("Meter", title_of(choice.meter), choice.link(meter=None)))
    if choice.day is not None:
        found.append(("Day", f"{choice.day.day} {choice.day:%B}", choice.link(day=None)))
    return found
