"""One invoice on one screen: its lines, what it still asks for, and what an operator may do with it."""

from typing import Any
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse

from control_plane.operator.acts import Act, ActForm, acts_by_name, is_done, offers, sent_act
from control_plane.operator.screens import framed, screen
from control_plane.templatetags.operator import amount
from tenants.billing.invoices.corrections import Correction, credit_note_create, invoice_void, left_of
from tenants.billing.invoices.reads import CSV_COLUMNS, csv_rows, due_of, project_names
from tenants.billing.invoices.services import invoice_draft, invoice_finalize
from tenants.billing.models import Invoice, InvoiceKind, InvoiceLine, InvoiceState
from tenants.billing.usage.months import closable_at
from tenants.models import User
from tenants.tables import csv_answer

VIEW, CHANGE = "billing.view_invoice", "billing.change_invoice"


class SureForm(ActForm):
    sure = forms.BooleanField(label="It gets a number and can never be changed again")


class ReasonForm(ActForm):
    reason = forms.CharField(max_length=500, help_text="The tenant can read it.")


class NoteForm(ReasonForm):
    amount = forms.DecimalField(
        max_digits=19, decimal_places=2, min_value=0, required=False, help_text="Empty: all that is left."
    )
    description = forms.CharField(max_length=300, required=False, help_text="Of the line; needed with an amount.")

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if (data.get("amount") is None) != (not data.get("description")):
            raise forms.ValidationError("An amount and a description come together, or neither.")
        return data


def _redraft(by: User, invoice: Invoice, data: dict[str, Any]) -> str:
    draft = invoice_draft(tenant=invoice.tenant, month=invoice.period_start)
    if draft is None:
        return "Nothing was used in that month any more; the draft is gone."
    return f"Drafted anew: {amount(draft.total, draft.currency)}."


def _finalize(by: User, invoice: Invoice, data: dict[str, Any]) -> str:
    final = invoice_finalize(by=by, tenant=invoice.tenant, month=invoice.period_start)
    return f"Invoice {final.number} is final." if final else "Nothing was used: the month is closed, without a bill."


def _void(by: User, invoice: Invoice, data: dict[str, Any]) -> str:
    invoice_void(by=by, invoice=invoice, reason=data["reason"])
    return f"Invoice {invoice.number} is void; its usage is unbilled again."


def _note(by: User, invoice: Invoice, data: dict[str, Any]) -> str:
    lines = None
    if data["amount"] is not None:
        lines = [Correction(description=data["description"], amount=data["amount"])]
    note = credit_note_create(by=by, invoice=invoice, reason=data["reason"], lines=lines)
    return f"Credit note {note.number} takes back {amount(-note.total, note.currency)}."


def _is_draft(invoice: Invoice) -> bool:
    return invoice.state == InvoiceState.DRAFT


def _is_final(invoice: Invoice) -> bool:
    return invoice.kind == InvoiceKind.INVOICE and invoice.state == InvoiceState.FINAL


ACTS = acts_by_name(
    Act(
        name="redraft",
        title="Draft it anew",
        permission=CHANGE,
        form=ActForm,
        do=_redraft,
        button="Add up its month again",
        offered=_is_draft,
    ),
    Act(
        name="finalize",
        title="Make it final",
        permission=CHANGE,
        form=SureForm,
        do=_finalize,
        button="Make it final",
        offered=_is_draft,
    ),
    Act(
        name="void",
        title="Void",
        permission=CHANGE,
        form=ReasonForm,
        do=_void,
        button="Void this invoice",
        offered=_is_final,
    ),
    Act(
        name="note",
        title="Credit note",
        permission=CHANGE,
        form=NoteForm,
        do=_note,
        button="Make the credit note",
        offered=_is_final,
    ),
)


@screen(VIEW)
def invoice_page(request: HttpRequest, invoice_id: UUID) -> HttpResponse:
    """The form of an act is sent to the page itself, as ``act``; done, it leads back."""
    invoice = _read(invoice_id)
    sent = sent_act(request, ACTS, invoice)
    if sent is not None and is_done(request, sent):
        is_there = Invoice.objects.filter(pk=invoice_id).exists()  # an empty draft is not kept
        return HttpResponseRedirect(request.path if is_there else reverse("admin:billing_invoice_changelist"))
    return framed(
        request,
        "invoice.html",
        str(invoice).capitalize() if invoice.number is None else f"Invoice {invoice.number}",
        invoice=invoice,
        lines=_lines(invoice),
        due=due_of(invoice),
        left=left_of(invoice) if _is_final(invoice) else None,
        closable_at=closable_at(invoice.period_start),
        offers=offers(request, ACTS, invoice, sent),
        sent=sent.act.name if sent else "",
    )


@screen(VIEW)
def invoice_csv(request: HttpRequest, invoice_id: UUID) -> HttpResponseBase:
    invoice = _read(invoice_id)
    rows = list(csv_rows(invoice, project_names(invoice.tenant)))  # of one invoice: they fit
    return csv_answer(CSV_COLUMNS, rows, name=f"invoice {invoice}")


def _lines(invoice: Invoice) -> list[tuple[InvoiceLine, str]]:
    """Each with its project's short name, in the order in which they are shown."""
    names = project_names(invoice.tenant)
    lines = sorted(invoice.lines.all(), key=lambda line: line.position)
    return [(line, names.get(line.project_id, "") if line.project_id else "") for line in lines]


def _read(invoice_id: UUID) -> Invoice:
    rows = Invoice.objects.select_related("tenant", "corrects").prefetch_related("lines", "corrections")
    invoice = rows.filter(pk=invoice_id).first()
    if invoice is None:
        raise Http404
    return invoice
