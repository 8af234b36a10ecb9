"""Invoices: the list, and one invoice as a page to read and to print."""

from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.views.page import frame, page
from tenants.billing.invoices.reads import due_of, invoice_get, invoice_list
from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import InvoiceKind, LineKind
from tenants.permissions import Permission
from tenants.requests import PageRequest

PER_PAGE = 24  # two years
_OF_USAGE = (LineKind.USAGE, LineKind.LATE_USAGE)


@require_safe
@page(Permission.BILLING_READ)
def invoice_table(request: PageRequest) -> HttpResponse:
    """Every invoice, newest first, and what is to be paid."""
    invoices = invoice_list(request.tenant).order_by("-created_at", "-pk")
    context = frame(request, "usage") | {
        "tab": "invoices",
        "shown": Paginator(invoices, PER_PAGE).get_page(request.GET.get("page")),
        "balance": balance_of(request.tenant),
        "currency": request.tenant.currency,
    }
    return render(request, "console/billing/invoices.html", context)


@require_safe
@page(Permission.BILLING_READ)
def invoice_page(request: PageRequest, invoice_id: UUID) -> HttpResponse:
    """One invoice or credit note."""
    invoice = invoice_get(request.tenant, invoice_id)
    lines = sorted(invoice.lines.all(), key=lambda line: line.position)
    context = frame(request, "usage") | {
        "invoice": invoice,
        "lines": lines,
        "due": due_of(invoice),
        "is_note": invoice.kind == InvoiceKind.CREDIT_NOTE,
        "notes": sorted(invoice.corrections.all(), key=lambda note: note.number or ""),
        "has_units": any(line.kind in _OF_USAGE for line in lines),
    }
    return render(request, "console/billing/invoice.html", context)
