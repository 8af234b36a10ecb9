"""The lines of a month's invoice: what was used by project and meter, each rounded once, and the credit that paid."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import TruncMonth

from tenants.billing.currencies import rounded, rounded_down
from tenants.billing.ledger.books import ZERO
from tenants.billing.models import Account, InvoiceLine, LedgerEntry, LedgerKind, LineKind, Meter, UsageRollup
from tenants.models import Project, Tenant

METER_NAMES = {
    Meter.TRAIN_SAMPLES: "Training samples",
    Meter.TRAIN_COMPUTE_US: "Training, device time",
    Meter.PREDICT_CHUNKS: "Predicted chunks",
    Meter.PREDICT_COMPUTE_US: "Predicting, device time",
    Meter.ENV_STEPS: "Environment steps",
    Meter.ENV_COMPUTE_US: "Simulating, processor time",
    Meter.STORAGE_BYTE_HOURS: "Storage",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBill:
    """What a month comes to. ``total`` = sum of the shown lines = ``owed`` - ``applied`` + ``rounding``."""

    lines: tuple[InvoiceLine, ...]  # not stored, without an invoice
    total: Decimal  # shown, never negative
    owed: Decimal  # usage that no credit paid when it was captured, 12 places
    applied: Decimal  # free credit that pays for the rest now; whole minor units

    @property
    def rounding(self) -> Decimal:
        """What rounding the lines gave to the platform, or took from it."""
        return self.total - (self.owed - self.applied)


def month_bill(tenant: Tenant, month: date, credit: Decimal) -> MonthBill | None:
    """Work out the invoice of a month from its running sums; ``credit`` is the tenant's free credit now.

    None if nothing was used. Needs the platform's scope; lock period and account to keep what it says true.
    """
    usage = _usage_lines(tenant, month)
    if not usage:
        return None
    shown, exact = _sum(usage, "amount"), _sum(usage, "exact")
    captured = _captured(tenant, month)
    credits: list[InvoiceLine] = []
    paid = ZERO
    if captured:
        # Rounded like any line, but credit that paid for everything leaves nothing to pay, not a cent.
        paid = shown if captured == exact else min(rounded(captured, tenant.currency), shown)
        credits.append(_credit_line(tenant, "Credit used by the jobs", exact=-captured, amount=-paid))
    applied = min(rounded_down(credit, tenant.currency), shown - paid)
    if applied:
        credits.append(_credit_line(tenant, "Credit used for the rest", exact=-applied, amount=-applied))
    lines = (*usage, *credits)
    for position, line in enumerate(lines, start=1):
        line.position = position
    return MonthBill(lines=lines, total=shown - paid - applied, owed=exact - captured, applied=applied)


def rollups_by_line(tenant_id: UUID, month: date) -> QuerySet[Any, Any]:
    """The running sums of a month's invoice, one row per line: month it happened in, project and meter."""
    return (
        UsageRollup.objects.filter(tenant_id=tenant_id, period=month)
        .annotate(month=TruncMonth("day"))
        .values("month", "project_id", "meter")
        .annotate(
            exact=Sum("amount"),
            billed=Sum("quantity", filter=Q(reason=""), default=0),
            free=Sum("quantity", filter=~Q(reason=""), default=0),
        )
        .order_by("month", "project_id", "meter")
    )


def _usage_lines(tenant: Tenant, month: date) -> list[InvoiceLine]:
    names = dict(Project.objects.filter(tenant=tenant).values_list("pk", "name"))
    lines = [_usage_line(tenant, month, row, names) for row in rollups_by_line(tenant.pk, month)]
    return sorted(lines, key=lambda line: (line.month != month, line.month or month, line.description))


def _usage_line(tenant: Tenant, month: date, row: dict[str, Any], names: dict[UUID, str]) -> InvoiceLine:
    late = row["month"] != month
    what = METER_NAMES[Meter(row["meter"])]
    if row["project_id"] is not None:
        what = f"{what}, {names.get(row['project_id'], 'a project that is gone')}"
    return InvoiceLine(
        tenant=tenant,
        kind=LineKind.LATE_USAGE if late else LineKind.USAGE,
        project_id=row["project_id"],
        meter=row["meter"],
        month=row["month"],
        description=f"{what} (late usage of {row['month']:%Y-%m})" if late else what,
        quantity=int(row["billed"]),
        free_quantity=int(row["free"]),
        exact=row["exact"],
        amount=rounded(row["exact"], tenant.currency),
    )


def _captured(tenant: Tenant, month: date) -> Decimal:
    """Credit and held funds that the month's usage took when it came."""
    taken = LedgerEntry.objects.filter(
        tenant=tenant,
        transaction__kind=LedgerKind.CAPTURE,
        account__in=[Account.HOLD, Account.CREDIT],
        period=month,
    )
    return -(taken.aggregate(total=Sum("amount"))["total"] or ZERO)


def _credit_line(tenant: Tenant, description: str, *, exact: Decimal, amount: Decimal) -> InvoiceLine:
    return InvoiceLine(tenant=tenant, kind=LineKind.CREDIT, description=description, exact=exact, amount=amount)


def _sum(lines: Sequence[InvoiceLine], field: str) -> Decimal:
    return sum((getattr(line, field) for line in lines), ZERO)
