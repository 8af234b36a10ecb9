"""Months and their invoices: draft, final, void. What is final never changes; corrections are credit notes."""

import uuid

from django.db import models

from tenants.billing.models.usage import Meter
from tenants.billing.money import MoneyField
from tenants.scope import TenantOwned


class BillingPeriod(TenantOwned):
    """A calendar month (UTC) of a tenant. Locked by ingest and by closing, so no event slips between two months."""

    start = models.DateField()  # first day
    closed_at = models.DateTimeField(null=True)  # its invoice is final; later events go to the open month

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "start"], name="one_period_per_month")]


class InvoiceKind(models.TextChoices):
    INVOICE = "invoice"
    CREDIT_NOTE = "credit_note"  # takes back (part of) a final invoice


class InvoiceState(models.TextChoices):
    """Life of an invoice."""

    DRAFT = "draft"  # follows the usage of its month
    FINAL = "final"  # numbered and frozen
    VOID = "void"  # cancelled as a whole; its number stays used


class Invoice(TenantOwned):  # type: ignore[django-manager-missing]
    """A month's bill, or a correction of one. ``total == sum of its lines``, each rounded once to the cent.

    ``due = total``: lines include the credit that was used, as a negative line.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=20, choices=InvoiceKind.choices, default=InvoiceKind.INVOICE)
    state = models.CharField(max_length=20, choices=InvoiceState.choices, default=InvoiceState.DRAFT)
    number = models.CharField(max_length=30, null=True, unique=True)  # from the day it is final, without gaps
    period_start = models.DateField()
    period_end = models.DateField()  # first day after it
    currency = models.CharField(max_length=3)
    total = MoneyField(default=0)
    corrects = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="corrections")
    reason = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finalized_at = models.DateTimeField(null=True)
    voided_at = models.DateTimeField(null=True)
    paid_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "period_start"],
                condition=models.Q(kind="invoice") & ~models.Q(state="void"),
                name="one_invoice_per_month",
            )
        ]

    def __str__(self) -> str:
        return self.number or f"draft for {self.period_start:%Y-%m}"


class LineKind(models.TextChoices):
    USAGE = "usage"
    LATE_USAGE = "late_usage"  # of an earlier month, whose invoice was final when it came
    CREDIT = "credit"  # prepaid or granted credit that paid for usage; negative
    CORRECTION = "correction"  # of a credit note; negative


class InvoiceLine(TenantOwned):
    """One shown line. ``exact`` has 12 places, ``amount`` is it rounded half up to the cent: the sum is of these."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=20, choices=LineKind.choices)
    project_id = models.UUIDField(null=True)
    meter = models.CharField(max_length=40, choices=Meter.choices, blank=True)
    month = models.DateField(null=True)  # the usage happened in
    description = models.CharField(max_length=300)
    quantity = models.PositiveBigIntegerField(default=0)  # billed units
    free_quantity = models.PositiveBigIntegerField(default=0)  # metered and not billed
    exact = MoneyField()
    amount = MoneyField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["invoice", "position"], name="one_line_per_position")]


class InvoiceSequence(models.Model):
    """The last number given out in a year; its row is locked while one is taken, so there are no gaps."""

    year = models.PositiveIntegerField(unique=True)
    last = models.PositiveIntegerField(default=0)
