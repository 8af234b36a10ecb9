"""How invoices write figures: amounts to the minor unit, quantities in the unit people think in, states."""

from decimal import Decimal

from django import template

from frontend.templatetags.console import currency_sign
from tenants.billing.currencies import rounded
from tenants.billing.models import Invoice, InvoiceKind, InvoiceLine, InvoiceState, Meter
from tenants.billing.money import plain
from tenants.billing.usage.months import closable_at

register = template.Library()

_NBSP = "\u00a0"
_MINUS = "\u2212"


@register.simple_tag
def amount(value: Decimal, currency: str) -> str:
    """``€1,234.50``, ``−€0.05``: to the minor unit, which is what an invoice asks for."""
    shown = rounded(value, currency)
    sign = _MINUS if shown < 0 else ""
    return f"{sign}{currency_sign(currency)}{abs(shown):,}"


@register.simple_tag
def taken_back(note: Invoice) -> str:
    """What a credit note takes back, as a positive amount."""
    return amount(-note.total, note.currency)


@register.filter
def units(quantity: int, meter: str) -> str:
    """A meter's quantity: device time in hours or seconds, storage in GB-hours, everything else counted."""
    if meter.endswith("compute_us"):
        seconds = quantity / 1e6
        return f"{seconds / 3600:,.2f}{_NBSP}h" if seconds >= 3600 else f"{seconds:,.1f}{_NBSP}s"
    if meter == Meter.STORAGE_BYTE_HOURS:
        return f"{quantity / 1e9:,.2f}{_NBSP}GB{_NBSP}h"
    return f"{quantity:,}"


@register.filter
def price_note(line: InvoiceLine) -> str:
    """The exact money of a line where rounding changed it."""
    return "" if line.exact == line.amount else plain(line.exact)


@register.filter
def invoice_title(invoice: Invoice) -> str:
    """``Invoice 2026-000001``, ``Credit note 2026-000002``, ``Draft for May 2026``."""
    if invoice.number is None:
        return f"Draft for {invoice.period_start:%B %Y}"
    return f"{'Credit note' if invoice.kind == InvoiceKind.CREDIT_NOTE else 'Invoice'} {invoice.number}"


@register.inclusion_tag("console/parts/invoice_pill.html")
def invoice_pill(invoice: Invoice) -> dict[str, str]:
    """What became of it, in a word and a tone."""
    if invoice.state == InvoiceState.DRAFT:
        final = closable_at(invoice.period_start)
        return {"tone": "queued", "word": f"Draft until {final.day}{_NBSP}{final:%b}"}
    if invoice.state == InvoiceState.VOID:
        return {"tone": "cancelled", "word": "Void"}
    if invoice.kind == InvoiceKind.CREDIT_NOTE:
        return {"tone": "cancelled", "word": "Credit note"}
    if invoice.paid_at is None:
        return {"tone": "cancelling", "word": "To be paid"}
    return {"tone": "succeeded", "word": "Settled"}
