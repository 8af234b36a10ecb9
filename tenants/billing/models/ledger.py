"""Double entry: every transaction moves money between accounts and sums to zero. Balances are sums, cached once."""

import uuid

from django.db import models

from tenants.append_only import AppendOnly
from tenants.billing.money import MoneyField
from tenants.scope import TenantOwned


class BillingMode(models.TextChoices):
    """Whether a tenant pays before or after."""

    INVOICED = "invoiced"  # usage beyond the credit goes on the monthly invoice
    PREPAID = "prepaid"  # usage comes out of the credit; without credit nothing starts and what runs is stopped


class BillingAccount(TenantOwned):
    """A tenant's mode and the cached sums of its credit and hold accounts. Locked by every movement of its money."""

    mode = models.CharField(max_length=20, choices=BillingMode.choices, default=BillingMode.INVOICED)
    credit = MoneyField(default=0)  # free to be used: sum of account "credit"
    held = MoneyField(default=0)  # reserved for running jobs: sum of account "hold"

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant"], name="one_billing_account"),
            models.CheckConstraint(condition=models.Q(credit__gte=0) & models.Q(held__gte=0), name="never_overdrawn"),
        ]

    def __str__(self) -> str:
        return f"account of {self.tenant}"


class Account(models.TextChoices):
    """Where money is. A positive balance is money there; the outside world's accounts are negative."""

    CASH = "cash"  # paid in by the tenant
    PROMO = "promo"  # given by the platform
    CREDIT = "credit"  # the tenant's, free
    HOLD = "hold"  # the tenant's, reserved for a job
    UNBILLED = "unbilled"  # used and not yet on an invoice (negative: the tenant owes it)
    RECEIVABLE = "receivable"  # on a final invoice and not yet paid (negative)
    REVENUE = "revenue"  # earned by the platform
    ROUNDING = "rounding"  # what rounding invoice lines to cents gave or took


class LedgerKind(models.TextChoices):
    """Why money moved."""

    PAYMENT = "payment"  # cash -> credit, or cash -> receivable for an invoice
    GRANT = "grant"  # promo -> credit
    HOLD = "hold"  # credit -> hold
    CAPTURE = "capture"  # hold, then credit, then unbilled -> revenue
    RELEASE = "release"  # hold -> credit
    INVOICE = "invoice"  # receivable, credit and rounding -> unbilled
    CREDIT_NOTE = "credit_note"  # revenue -> receivable, or credit where the invoice is paid
    VOID = "void"  # the entries of an invoice, reversed


class LedgerTransaction(TenantOwned, AppendOnly):  # type: ignore[django-manager-missing]
    """One movement. (tenant, kind, reference) is unique: whoever repeats it finds it done."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=20, choices=LedgerKind.choices)
    reference = models.CharField(max_length=200)  # of its cause: a hold, an invoice, a batch of events
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=500, blank=True)
    invoice = models.ForeignKey("billing.Invoice", on_delete=models.PROTECT, null=True, related_name="transactions")
    created_by = models.ForeignKey("tenants.User", on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "kind", "reference"], name="moved_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.reference}"


class LedgerEntry(TenantOwned, AppendOnly):
    """One account's side of a transaction."""

    transaction = models.ForeignKey(LedgerTransaction, on_delete=models.PROTECT, related_name="entries")
    account = models.CharField(max_length=20, choices=Account.choices)
    amount = MoneyField()  # signed
    job_id = models.UUIDField(null=True)  # whose hold it is
    period = models.DateField(null=True)  # of usage: first day of the month whose invoice it is on

    class Meta:
        verbose_name_plural = "ledger entries"
        indexes = [models.Index(fields=["tenant", "account"], name="entries_by_account")]


class Hold(TenantOwned):
    """What a job may still spend of the month's limits, reserved in the transaction that admits it.

    ``amount`` counts against limits and budgets; ``funded`` of it was moved out of the credit (prepaid tenants).
    Usage is captured from it; what is left is released when the job ends. A job that is queued again gets another one.
    """

    job_id = models.UUIDField()
    project_id = models.UUIDField(null=True)
    key_id = models.UUIDField(null=True)
    amount = MoneyField()
    funded = MoneyField(default=0)
    captured = MoneyField(default=0)  # usage of the job so far, up to ``amount``
    captured_funds = MoneyField(default=0)  # of ``funded``
    created_at = models.DateTimeField(auto_now_add=True)
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job_id"], condition=models.Q(released_at=None), name="one_open_hold_per_job"
            ),
            models.CheckConstraint(
                condition=models.Q(
                    captured__gte=0,
                    captured__lte=models.F("amount"),
                    captured_funds__gte=0,
                    captured_funds__lte=models.F("funded"),
                    funded__lte=models.F("amount"),
                ),
                name="hold_sane",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "released_at"], name="holds_open"),
            models.Index(fields=["job_id"], name="holds_by_job"),
        ]
