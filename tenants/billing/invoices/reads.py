"""Reading invoices: lists, one with its lines, and rows for spreadsheets."""

from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

from django.db.models import QuerySet

from tenants.access import access_row
from tenants.billing.ledger.books import outstanding
from tenants.billing.models import Invoice, InvoiceState
from tenants.models import Project, Tenant

CSV_COLUMNS = (
    *("number", "state", "period_start", "period_end", "position", "kind", "project", "meter", "month"),
    *("description", "quantity", "free_quantity", "amount", "exact", "currency"),
)


class PlainNumber(Decimal):
    """A number for a spreadsheet: written out in full, never with an exponent, never taken for a formula."""

    def __str__(self) -> str:
        return f"{self:f}"


def invoice_list(tenant: Tenant) -> QuerySet[Invoice]:
    """Drafts, final and void invoices and credit notes."""
    return Invoice.objects.filter(tenant=tenant).select_related("corrects")


def invoice_get(tenant: Tenant, invoice_id: UUID) -> Invoice:
    """One, with its lines at hand. Raises the 404 of a missing row."""
    rows = invoice_list(tenant).prefetch_related("lines", "corrections")
    return access_row(rows, "invoice", pk=invoice_id)


def due_of(invoice: Invoice) -> Decimal:
    """What an invoice still asks for; drafts and void ones ask for nothing."""
    return outstanding(invoice) if invoice.state == InvoiceState.FINAL else Decimal(0)


def project_names(tenant: Tenant) -> dict[UUID, str]:
    """Slugs by id."""
    return dict(Project.objects.filter(tenant=tenant).values_list("pk", "slug"))


def csv_rows(invoice: Invoice, projects: dict[UUID, str]) -> Iterator[list[object]]:
    """One row per line, under `CSV_COLUMNS`."""
    for line in sorted(invoice.lines.all(), key=lambda row: row.position):
        yield [
            invoice.number,
            invoice.state,
            invoice.period_start.isoformat(),
            invoice.period_end.isoformat(),
            line.position,
            line.kind,
            projects.get(line.project_id) if line.project_id else None,
            line.meter,
            line.month and line.month.isoformat(),
            line.description,
            line.quantity,
            line.free_quantity,
            PlainNumber(line.amount),
            PlainNumber(line.exact),
            invoice.currency,
        ]
