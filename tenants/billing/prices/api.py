"""REST: what things cost."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import fingerprint
from tenants.billing.models import PricePlan, PriceShape, PriceVersion, PriorityFactor
from tenants.billing.prices.price_list import VALIDITIES, PriceList, Term, price_list
from tenants.billing.prices.tariffs import price_of
from tenants.billing.usage.api import MoneyOutput, money
from tenants.listing import refuse_query
from tenants.permissions import Permission
from tenants.preconditions import tagged
from tenants.requests import TenantRequest

PlanOutput = inline_serializer(
    "Plan",
    {
        "code": serializers.CharField(),
        "name": serializers.CharField(),
        "currency": serializers.CharField(),
        "version": serializers.IntegerField(help_text="Rises with every price and factor that is announced."),
        "since": serializers.DateTimeField(allow_null=True, help_text="Null: the default plan, from the start."),
    },
)
TERM_OUTPUT: dict[str, serializers.Field[Any, Any, Any, Any]] = {
    "valid_from": serializers.DateTimeField(),
    "valid_until": serializers.DateTimeField(allow_null=True, help_text="When the next version takes over."),
    "state": serializers.ChoiceField(choices=VALIDITIES),
}
TierOutput = inline_serializer(
    "PriceTier",
    {
        "up_to": serializers.IntegerField(allow_null=True, help_text="Units of the month; null: all the rest."),
        "price": MoneyOutput,
    },
)
PriceOutput = inline_serializer(
    "Price",
    {
        "meter": serializers.CharField(),
        "shape": serializers.ChoiceField(
            choices=PriceShape.choices, help_text="How a quantity becomes money; tiers and packages count per month."
        ),
        "per": serializers.IntegerField(help_text="The price is for this many units."),
        "price": MoneyOutput,
        "tiers": TierOutput.__class__(many=True, help_text="Of graduated prices."),
        **TERM_OUTPUT,
    },
)
FactorOutput = inline_serializer(
    "PriorityFactor",
    {
        "priority": serializers.IntegerField(),
        "permille": serializers.IntegerField(help_text="Jobs of this priority pay so many thousandths of the price."),
        **TERM_OUTPUT,
    },
)
PricesOutput = inline_serializer(
    "Prices",
    {
        "plan": PlanOutput,
        "coming_plans": PlanOutput.__class__(many=True),
        "results": PriceOutput.__class__(many=True, help_text="By meter, newest first."),
        "factors": FactorOutput.__class__(many=True, help_text="Priorities that are not listed pay the price itself."),
    },
)


class PriceListApi(APIView):
    """The plan in force for this tenant: every version of its prices and the factors of priorities.

    Usage is priced at the version valid when it happened; what is announced never changes that.
    """

    permission = {"GET": Permission.BILLING_READ}

    @extend_schema(
        operation_id="prices_list",
        parameters=[OpenApiParameter("If-None-Match", OpenApiTypes.STR, OpenApiParameter.HEADER)],
        responses={200: PricesOutput, 304: OpenApiResponse(description="Nothing has changed since that ETag.")},
    )
    def get(self, request: TenantRequest) -> Response:
        refuse_query(request)
        found = price_list(request.tenant, at=timezone.now())
        body = _body(found)
        # The version alone does not tell that an announced price has begun, or that the tenant has another plan.
        return tagged(request, f"{found.plan.version}-{fingerprint(body)[:20]}", body)


def _body(found: PriceList) -> dict[str, Any]:
    return {
        "plan": _plan(found.plan, found.since.isoformat() if found.since else None),
        "coming_plans": [_plan(row.plan, row.valid_from.isoformat()) for row in found.coming],
        "results": [_price(version, term) for version, term in found.prices],
        "factors": [_factor(factor, term) for factor, term in found.factors],
    }


def _plan(plan: PricePlan, since: str | None) -> dict[str, Any]:
    return {
        "code": plan.code,
        "name": plan.name,
        "currency": plan.currency,
        "version": plan.version,
        "since": since,
    }


def _price(version: PriceVersion, term: Term) -> dict[str, Any]:
    tiers = [{"up_to": tier.up_to, "price": money(tier.amount, version.currency)} for tier in price_of(version).tiers]
    return {
        "meter": version.meter,
        "shape": version.shape,
        "per": version.per,
        "price": money(version.amount, version.currency),
        "tiers": tiers,
        **_term(term),
    }


def _factor(factor: PriorityFactor, term: Term) -> dict[str, Any]:
    return {"priority": factor.priority, "permille": factor.permille, **_term(term)}


def _term(term: Term) -> dict[str, Any]:
    until = term.until.isoformat() if term.until else None
    return {"valid_from": term.since.isoformat(), "valid_until": until, "state": term.state.value}
