"""Credit and ledger, and the prices in force."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_safe

from frontend.usage.prices import prices_told
from frontend.views.page import answer, frame, page
from jobs.selectors.names import job_names
from tenants.billing.ledger.balances import balance_of
from tenants.billing.ledger.reads import CSV_COLUMNS, csv_rows, ledger_page
from tenants.billing.models import LedgerKind
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.tables import csv_answer

PER_PAGE = 50
KINDS = {
    LedgerKind.PAYMENT: "Payments",
    LedgerKind.GRANT: "Grants",
    LedgerKind.HOLD: "Holds",
    LedgerKind.CAPTURE: "Usage",
    LedgerKind.RELEASE: "Releases",
    LedgerKind.INVOICE: "Invoices",
    LedgerKind.CREDIT_NOTE: "Credit notes",
    LedgerKind.VOID: "Voided invoices",
}


@require_safe
@page(Permission.BILLING_READ)
def credit_page(request: PageRequest) -> HttpResponse:
    """What the lab has and owes, and every movement of its money, newest first."""
    kind, before = _kind(request), _before(request)
    shown = ledger_page(request.tenant, kind=kind, before=before, most=PER_PAGE)
    jobs = job_names(request.tenant, [row.job_id for row in shown.movements if row.job_id])
    context = frame(request, "usage") | {
        "tab": "credit",
        "balance": balance_of(request.tenant),
        "movements": [(row, jobs.get(row.job_id) if row.job_id else None) for row in shown.movements],
        "older": shown.older,
        "is_first": before is None,
        "kinds": KINDS.items(),
        "kind": kind or "",
    }
    return answer(request, "console/billing/credit.html", "console/billing/credit_part.html", context)


@require_safe
@page(Permission.BILLING_READ)
def ledger_csv(request: PageRequest) -> HttpResponseBase:
    """Every entry of those movements as a file."""
    return csv_answer(CSV_COLUMNS, csv_rows(request.tenant, _kind(request)), name="ledger")


@require_safe
@page(Permission.BILLING_READ)
def prices_page(request: PageRequest) -> HttpResponse:
    """What each meter costs now, what is announced, and what priorities pay."""
    context: dict[str, Any] = frame(request, "usage") | {
        "tab": "prices",
        "told": prices_told(request.tenant, timezone.now()),
    }
    return answer(request, "console/billing/prices.html", "console/billing/prices_part.html", context)


def _kind(request: PageRequest) -> LedgerKind | None:
    """One kind of movement; None: all, also where the address names one that does not exist."""
    name = request.GET.get("kind", "")
    return LedgerKind(name) if name in LedgerKind.values else None


def _before(request: PageRequest) -> UUID | None:
    try:
        return UUID(request.GET.get("before", ""))
    except ValueError:
        return None
