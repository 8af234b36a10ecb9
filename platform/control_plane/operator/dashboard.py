"""The first page: what needs attention, how busy it is, what the month has earned."""

from decimal import Decimal

from django.contrib import admin
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from control_plane.operator.attention import matters, queue_now
from control_plane.operator.screens import framed
from jobs.selectors.runtime import runtime_report
from tenants.billing.models import UsageRollup
from tenants.billing.usage.periods import month_after, month_of
from tenants.models import Tenant
from tenants.scope import platform_scope

MONEY = "billing.view_invoice"


def dashboard_page(request: HttpRequest) -> TemplateResponse:
    """For all staff; money only for those who may see invoices."""
    with platform_scope():
        may_see_money = request.user.has_perm(MONEY)
        page = framed(
            request,
            "dashboard.html",
            "What needs attention",
            matters=matters(),
            queue=queue_now(),
            report=runtime_report(),
            tenants=Tenant.objects.count(),
            earned=earned_this_month() if may_see_money else None,
        )
        page.render()
        return page


def records_page(request: HttpRequest) -> HttpResponse:
    """Every model that is registered, app by app: Django's own first page."""
    return framed(request, "records.html", "All records", app_list=admin.site.get_app_list(request))


def earned_this_month() -> list[tuple[str, Decimal]]:
    """What this month's usage has cost so far, by currency."""
    first = month_of(timezone.now())
    rows = UsageRollup.objects.filter(day__gte=first, day__lt=month_after(first)).values("currency")
    return [(row["currency"], row["amount"]) for row in rows.annotate(amount=Sum("amount")).order_by("currency")]
