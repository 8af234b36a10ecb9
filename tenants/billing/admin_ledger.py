"""Operators' lists of the ledger, invoices, budgets and reconciliation. Nothing here can be edited or deleted."""

from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html

from tenants.admin_base import OfTenant, ReadOnly, RowsInside
from tenants.billing.models import (
    BillingAccount,
    BillingPeriod,
    Budget,
    BudgetAlert,
    Hold,
    Invoice,
    InvoiceLine,
    LedgerEntry,
    LedgerTransaction,
    ReconciliationRun,
)


@admin.register(BillingAccount)
class BillingAccountAdmin(ReadOnly):
    list_display = ["tenant", "mode", "credit", "held"]
    list_filter = ["mode", OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["tenant__name", "tenant__slug"]
    ordering = ["-pk"]


class EntryRows(RowsInside):
    model = LedgerEntry
    fields = ["account", "amount", "job_id"]


@admin.register(LedgerTransaction)
class LedgerTransactionAdmin(ReadOnly):
    list_display = ["created_at", "tenant", "kind", "reference", "currency", "reason", "created_by"]
    list_filter = ["kind", OfTenant]
    list_select_related = ["tenant", "created_by"]
    search_fields = ["=reference", "=id"]
    ordering = ["-created_at"]
    inlines = [EntryRows]


@admin.register(LedgerEntry)
class LedgerEntryAdmin(ReadOnly):
    list_display = ["created_at", "tenant", "kind", "account", "amount", "job_id"]
    list_filter = ["account", OfTenant]
    list_select_related = ["tenant", "transaction"]
    search_fields = ["=job_id"]
    ordering = ["-pk"]

    @admin.display(description="Moved at")
    def created_at(self, entry: LedgerEntry) -> Any:
        return entry.transaction.created_at

    @admin.display(description="Kind")
    def kind(self, entry: LedgerEntry) -> str:
        return entry.transaction.kind


@admin.register(Hold)
class HoldAdmin(ReadOnly):
    list_display = ["job_id", "tenant", "amount", "funded", "captured", "captured_funds", "created_at", "released_at"]
    list_filter = [("released_at", admin.EmptyFieldListFilter), OfTenant]
    list_select_related = ["tenant"]
    search_fields = ["=job_id"]
    ordering = ["-pk"]


@admin.register(BillingPeriod)
class BillingPeriodAdmin(ReadOnly):
    list_display = ["start", "tenant", "closed_at"]
    list_filter = [("closed_at", admin.EmptyFieldListFilter), OfTenant]
    list_select_related = ["tenant"]
    ordering = ["-start", "-pk"]


class LineRows(RowsInside):
    model = InvoiceLine
    fields = ["position", "kind", "meter", "month", "description", "quantity", "free_quantity", "amount"]
    ordering = ["position"]


@admin.register(Invoice)
class InvoiceAdmin(ReadOnly):
    list_display = [
        "screen",
        "tenant",
        "kind",
        "state",
        "period_start",
        "total",
        "currency",
        "finalized_at",
        "paid_at",
    ]
    list_filter = ["state", "kind", "period_start", ("paid_at", admin.EmptyFieldListFilter), OfTenant]
    list_select_related = ["tenant"]
    list_display_links = None
    search_fields = ["number", "tenant__name", "tenant__slug", "=id"]
    ordering = ["-period_start", "-created_at"]
    inlines = [LineRows]

    @admin.display(description="Invoice", ordering="number")
    def screen(self, invoice: Invoice) -> str:
        return format_html('<a href="{}">{}</a>', reverse("admin:operator_invoice", args=[invoice.pk]), invoice)


@admin.register(Budget)
class BudgetAdmin(ReadOnly):
    list_display = ["tenant", "project", "amount", "hard", "created_by", "created_at", "ended_at"]
    list_filter = ["hard", ("ended_at", admin.EmptyFieldListFilter), OfTenant]
    list_select_related = ["tenant", "project", "created_by"]
    ordering = ["-created_at"]


@admin.register(BudgetAlert)
class BudgetAlertAdmin(ReadOnly):
    list_display = ["created_at", "tenant", "month", "percent", "spent"]
    list_filter = ["percent", OfTenant]
    list_select_related = ["tenant"]
    ordering = ["-pk"]


@admin.register(ReconciliationRun)
class ReconciliationRunAdmin(ReadOnly):
    list_display = ["started_at", "finished_at", "by", "difference_count"]
    ordering = ["-started_at"]
