"""Usage: what the month has come to, and for what."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.figures import figure_json, meter_colour
from frontend.figures.stacks import Part, stacked_bars
from frontend.templatetags.console import SYMBOLS, meter_name
from frontend.views.page import frame, page
from tenants.billing.usage.periods import month_after, month_of
from tenants.billing.usage.selectors import UsageFilter, usage_totals
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.BILLING_READ)
def usage_page(request: PageRequest) -> HttpResponse:
    """The month by day and by meter."""
    month = month_of(timezone.now())
    wanted = UsageFilter(since=month, until=month_after(month))
    totals = usage_totals(request.tenant, group_by="day", wanted=wanted)
    days = sorted({total.group for total in totals}, key=str)
    spent = {(total.group, total.line.meter): float(total.line.amount) for total in totals}
    parts = [
        Part(name=meter_name(code), colour=meter_colour(code), values=[spent.get((day, code), 0.0) for day in days])
        for code in sorted({code for (_, code), amount in spent.items() if amount})
    ]
    figure = stacked_bars([str(day) for day in days], parts, prefix=SYMBOLS.get(request.tenant.currency, ""))
    context = frame(request, "usage") | {
        "month": month,
        "figure": figure_json(figure, height="l"),
        "lines": usage_totals(request.tenant, wanted=wanted),
    }
    return render(request, "console/usage/usage.html", context)
