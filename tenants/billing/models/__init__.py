"""Rows of the billing app."""

from tenants.append_only import AppendOnly
from tenants.billing.models.budgets import ALERT_PERCENTS, Budget, BudgetAlert
from tenants.billing.models.checks import ReconciliationDifference, ReconciliationRun
from tenants.billing.models.invoices import (
    BillingPeriod,
    Invoice,
    InvoiceKind,
    InvoiceLine,
    InvoiceSequence,
    InvoiceState,
    LineKind,
)
from tenants.billing.models.ledger import (
    Account,
    BillingAccount,
    BillingMode,
    Hold,
    LedgerEntry,
    LedgerKind,
    LedgerTransaction,
)
from tenants.billing.models.prices import DEFAULT_PLAN, PricePlan, PriceShape, PriceVersion, PriorityFactor, TenantPlan
from tenants.billing.models.usage import COMPUTE_METERS, NO_JOB, Meter, MeterTotal, RatedUsage, UsageEvent, UsageRollup

__all__ = [
    "ALERT_PERCENTS",
    "COMPUTE_METERS",
    "DEFAULT_PLAN",
    "NO_JOB",
    "Account",
    "AppendOnly",
    "BillingAccount",
    "BillingMode",
    "BillingPeriod",
    "Budget",
    "BudgetAlert",
    "Hold",
    "Invoice",
    "InvoiceKind",
    "InvoiceLine",
    "InvoiceSequence",
    "InvoiceState",
    "LedgerEntry",
    "LedgerKind",
    "LedgerTransaction",
    "LineKind",
    "Meter",
    "MeterTotal",
    "PricePlan",
    "PriceShape",
    "PriceVersion",
    "PriorityFactor",
    "RatedUsage",
    "ReconciliationDifference",
    "ReconciliationRun",
    "TenantPlan",
    "UsageEvent",
    "UsageRollup",
]
