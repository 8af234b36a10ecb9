"""Every screen of the operators' site that is not the list of a model, and what leads to them."""

from collections.abc import Callable
from dataclasses import dataclass

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, path, reverse

from control_plane.operator.dashboard import records_page
from control_plane.operator.invoice_page import invoice_csv, invoice_page
from control_plane.operator.new_tenants import new_tenant_page, owner_page
from control_plane.operator.prices import factor_page, price_page, prices_page
from control_plane.operator.reconciliation import reconciliation_page
from control_plane.operator.runtime import runtime_page
from control_plane.operator.tenant_page import tenant_page


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """One page. ``route`` is relative to the site."""

    route: str
    name: str
    view: Callable[..., HttpResponseBase]


SCREENS = (
    Screen(route="runtime/", name="operator_runtime", view=runtime_page),
    Screen(route="tenant/new/", name="operator_new_tenant", view=new_tenant_page),
    Screen(route="tenant/<uuid:tenant_id>/", name="operator_tenant", view=tenant_page),
    Screen(route="tenant/<uuid:tenant_id>/owner/", name="operator_owner", view=owner_page),
    Screen(route="prices/", name="operator_prices", view=prices_page),
    Screen(route="prices/<slug:code>/", name="operator_plan", view=prices_page),
    Screen(route="prices/<slug:code>/priorities/", name="operator_factor", view=factor_page),
    Screen(route="prices/<slug:code>/<str:meter>/", name="operator_price", view=price_page),
    Screen(route="invoice/<uuid:invoice_id>/", name="operator_invoice", view=invoice_page),
    Screen(route="invoice/<uuid:invoice_id>/csv", name="operator_invoice_csv", view=invoice_csv),
    Screen(route="reconciliation/", name="operator_reconciliation", view=reconciliation_page),
    Screen(route="records/", name="operator_records", view=records_page),
)
# What the top of every page links to: words, name of the route, permission that its list asks for.
LINKS = (
    ("Tenants", "tenants_tenant_changelist", "tenants.view_tenant"),
    ("Jobs", "jobs_job_changelist", "jobs.view_job"),
    ("Prices", "operator_prices", "billing.view_priceversion"),
    ("Invoices", "billing_invoice_changelist", "billing.view_invoice"),
    ("Webhooks", "webhooks_webhookdelivery_changelist", "webhooks.view_webhookdelivery"),
    ("Runtime", "operator_runtime", "jobs.view_runtimesnapshot"),
    ("Reconciliation", "operator_reconciliation", "billing.view_reconciliationrun"),
    ("Audit", "audit_auditevent_changelist", "audit.view_auditevent"),
)


def screen_urls(site: AdminSite) -> list[URLPattern]:
    """Behind the site's own check: whoever is no active member of staff is sent to the log-in."""
    return [path(screen.route, site.admin_view(screen.view), name=screen.name) for screen in SCREENS]


def navigation(request: HttpRequest) -> list[tuple[str, str, bool]]:
    """(words, address, whether we are there) of what this operator may look at."""
    shown = [(words, reverse(f"admin:{name}")) for words, name, asked in LINKS if _may(request, asked)]
    return [(words, address, request.path.startswith(address)) for words, address in shown]


def _may(request: HttpRequest, permission: str) -> bool:
    return bool(getattr(request.user, "is_staff", False) and request.user.has_perm(permission))
