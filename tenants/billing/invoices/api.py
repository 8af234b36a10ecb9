"""REST: invoices and credit notes, as JSON and as CSV."""

from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from tenants.billing.currencies import rounded
from tenants.billing.invoices.reads import CSV_COLUMNS, csv_rows, due_of, invoice_get, invoice_list, project_names
from tenants.billing.models import Invoice, InvoiceKind, InvoiceLine, InvoiceState, LineKind
from tenants.billing.usage.api import MoneyOutput, money
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.tables import MEDIA_TYPE, CsvRenderer, csv_answer
from tenants.whole_tenant import ForTheWholeTenant

StateName = Literal["draft", "final", "void"]


class InvoiceQuery(PageQuery):
    """Which invoices."""

    state: StateName | None = None


_INVOICE: dict[str, Any] = {
    "id": serializers.UUIDField(),
    "kind": serializers.ChoiceField(InvoiceKind.choices),
    "state": serializers.ChoiceField(InvoiceState.choices),
    "number": serializers.CharField(allow_null=True, help_text="Without gaps within a year; null for a draft."),
    "period_start": serializers.DateField(),
    "period_end": serializers.DateField(help_text="First day after the period."),
    "total": MoneyOutput,
    "corrects": serializers.UUIDField(allow_null=True, help_text="Of a credit note: the invoice."),
    "reason": serializers.CharField(),
    "created_at": serializers.DateTimeField(),
    "finalized_at": serializers.DateTimeField(allow_null=True),
    "voided_at": serializers.DateTimeField(allow_null=True),
    "paid_at": serializers.DateTimeField(allow_null=True),
}
LineOutput = inline_serializer(
    "InvoiceLine",
    {
        "position": serializers.IntegerField(),
        "kind": serializers.ChoiceField(LineKind.choices),
        "project": serializers.CharField(allow_null=True, help_text="Slug."),
        "meter": serializers.CharField(),
        "month": serializers.DateField(allow_null=True, help_text="In which the usage happened."),
        "description": serializers.CharField(),
        "quantity": serializers.IntegerField(help_text="Billed units."),
        "free_quantity": serializers.IntegerField(help_text="Metered and not billed."),
        "amount": MoneyOutput.__class__(help_text="Rounded once; the total is the sum of these."),
        "exact": MoneyOutput.__class__(help_text="Before rounding."),
    },
)
InvoiceOutput = inline_serializer("Invoice", _INVOICE)
InvoiceWithLinesOutput = inline_serializer(
    "InvoiceWithLines",
    _INVOICE
    | {
        "due": MoneyOutput.__class__(help_text="What it still asks for."),
        "corrections": serializers.ListField(child=serializers.UUIDField(), help_text="Its credit notes."),
        "lines": LineOutput.__class__(many=True),
    },
)


class _Row(serializers.BaseSerializer[Any]):
    def to_representation(self, instance: Invoice) -> dict[str, object]:
        return _told(instance)


class InvoiceListApi(ForTheWholeTenant, ListView):
    """Invoices and credit notes, newest first."""

    permission = {"GET": Permission.BILLING_READ}
    serializer_class = _Row
    query = InvoiceQuery

    def rows(self, request: TenantRequest, query: InvoiceQuery) -> QuerySet[Invoice]:
        rows = invoice_list(request.tenant)
        return rows.filter(state=query.state) if query.state else rows

    @extend_schema(
        operation_id="invoices_list",
        parameters=[OpenApiParameter("state", str, enum=["draft", "final", "void"])],
        responses=InvoiceOutput.__class__(many=True),
    )
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)


class InvoiceApi(ForTheWholeTenant):
    """One invoice or credit note with its lines."""

    permission = {"GET": Permission.BILLING_READ}

    @extend_schema(operation_id="invoices_get", responses=InvoiceWithLinesOutput)
    def get(self, request: TenantRequest, invoice_id: UUID) -> Response:
        refuse_query(request)
        invoice = invoice_get(request.tenant, invoice_id)
        projects = project_names(request.tenant)
        lines = sorted(invoice.lines.all(), key=lambda row: row.position)
        more = {
            "due": _shown(due_of(invoice), invoice.currency),
            "corrections": [str(note.pk) for note in invoice.corrections.all()],
            "lines": [_told_line(line, projects, invoice.currency) for line in lines],
        }
        return Response(_told(invoice) | more)


class InvoiceCsvApi(ForTheWholeTenant):
    """The lines of one invoice as a file."""

    permission = {"GET": Permission.BILLING_READ}
    renderer_classes = [JSONRenderer, CsvRenderer]

    @extend_schema(operation_id="invoices_csv", responses={(200, MEDIA_TYPE): OpenApiTypes.STR})
    def get(self, request: TenantRequest, invoice_id: UUID) -> HttpResponseBase:
        """Texts that a spreadsheet would take for formulas begin with an apostrophe; amounts are plain numbers."""
        refuse_query(request)
        invoice = invoice_get(request.tenant, invoice_id)
        name = f"invoice-{invoice.number or f'draft-{invoice.period_start:%Y-%m}'}"
        return csv_answer(CSV_COLUMNS, csv_rows(invoice, project_names(request.tenant)), name=name)


def _shown(amount: Decimal, currency: str) -> dict[str, str]:
    """Money in whole minor units, which it is."""
    return money(rounded(amount, currency), currency)


def _told(invoice: Invoice) -> dict[str, object]:
    return {
        "id": str(invoice.pk),
        "kind": invoice.kind,
        "state": invoice.state,
        "number": invoice.number,
        "period_start": invoice.period_start.isoformat(),
        "period_end": invoice.period_end.isoformat(),
        "total": _shown(invoice.total, invoice.currency),
        "corrects": invoice.corrects_id and str(invoice.corrects_id),
        "reason": invoice.reason,
        "created_at": invoice.created_at,
        "finalized_at": invoice.finalized_at,
        "voided_at": invoice.voided_at,
        "paid_at": invoice.paid_at,
    }


def _told_line(line: InvoiceLine, projects: dict[UUID, str], currency: str) -> dict[str, object]:
    return {
        "position": line.position,
        "kind": line.kind,
        "project": projects.get(line.project_id) if line.project_id else None,
        "meter": line.meter,
        "month": line.month and line.month.isoformat(),
        "description": line.description,
        "quantity": line.quantity,
        "free_quantity": line.free_quantity,
        "amount": _shown(line.amount, currency),
        "exact": money(line.exact, currency),
    }
