"""REST: what a tenant has, owes and may still spend; and every movement of its money."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.response import Response

from tenants.billing.ledger.balances import Balance, balance_of
from tenants.billing.models import Account, BillingMode, LedgerKind
from tenants.billing.models import LedgerTransaction as Transaction
from tenants.billing.usage.api import MoneyOutput, money
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.whole_tenant import ForTheWholeTenant

_MONEY_OR_NULL = {"allow_null": True}
BalanceOutput = inline_serializer(
    "Balance",
    {
        "mode": serializers.ChoiceField(BillingMode.choices),
        "credit": MoneyOutput,
        "held": MoneyOutput.__class__(help_text="Credit reserved for jobs."),
        "unbilled": MoneyOutput.__class__(help_text="Used, and on the next invoices."),
        "due": MoneyOutput.__class__(help_text="What final invoices still ask for."),
        "month": serializers.DateField(help_text="First day of the month the figures below are of."),
        "spent": MoneyOutput,
        "reserved": MoneyOutput.__class__(help_text="What admitted jobs may still spend."),
        "limit": MoneyOutput.__class__(allow_null=True, help_text="Of money per month; null: none."),
        "budget": MoneyOutput.__class__(allow_null=True, help_text="Of the tenant as a whole; null: none."),
    },
)
LedgerOutput = inline_serializer(
    "LedgerTransaction",
    {
        "id": serializers.UUIDField(),
        "kind": serializers.ChoiceField(LedgerKind.choices),
        "reference": serializers.CharField(),
        "reason": serializers.CharField(),
        "invoice": serializers.UUIDField(allow_null=True),
        "created_at": serializers.DateTimeField(),
        "entries": inline_serializer(
            "LedgerEntry",
            {
                "account": serializers.ChoiceField(Account.choices),
                "amount": MoneyOutput,
                "job": serializers.UUIDField(allow_null=True),
            },
            many=True,
        ),
    },
)


class _Movement(serializers.BaseSerializer[Any]):
    def to_representation(self, instance: Transaction) -> dict[str, object]:
        return {
            "id": str(instance.pk),
            "kind": instance.kind,
            "reference": instance.reference,
            "reason": instance.reason,
            "invoice": instance.invoice_id and str(instance.invoice_id),
            "created_at": instance.created_at,
            "entries": [
                {
                    "account": entry.account,
                    "amount": money(entry.amount, instance.currency),
                    "job": entry.job_id and str(entry.job_id),
                }
                for entry in sorted(instance.entries.all(), key=lambda row: row.pk)
            ],
        }


class BalanceApi(ForTheWholeTenant):
    """Credit, debts, and this month's spending against its limits."""

    permission = {"GET": Permission.BILLING_READ}

    @extend_schema(operation_id="balance", responses=BalanceOutput)
    def get(self, request: TenantRequest) -> Response:
        refuse_query(request)
        return Response(_told(balance_of(request.tenant), request.tenant.currency))


class LedgerApi(ForTheWholeTenant, ListView):
    """Every movement of the tenant's money, newest first. The entries of each sum to zero."""

    permission = {"GET": Permission.BILLING_READ}
    serializer_class = _Movement

    def rows(self, request: TenantRequest, query: PageQuery) -> QuerySet[Transaction]:
        return Transaction.objects.filter(tenant=request.tenant).prefetch_related("entries")

    @extend_schema(operation_id="ledger_list", responses=LedgerOutput.__class__(many=True))
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)


def _told(balance: Balance, currency: str) -> dict[str, object]:
    amounts = {
        name: None if amount is None else money(amount, currency)
        for name in ("credit", "held", "unbilled", "due", "spent", "reserved", "limit", "budget")
        for amount in [getattr(balance, name)]
    }
    return {"mode": balance.mode, "month": balance.month.isoformat(), **amounts}
