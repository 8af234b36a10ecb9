"""REST: what things cost and what was used."""

from dataclasses import asdict
from decimal import Decimal
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants.billing import selectors
from tenants.billing.selectors import GroupBy, UsageTotal
from tenants.bodies import parse_query
from tenants.listing import refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest


class UsageQuery(Message):
    """Which usage, and how to add it up."""

    job: UUID | None = None
    group_by: GroupBy = "meter"


def money(amount: Decimal, currency: str) -> dict[str, str]:
    """The API's form of money: a string of exact digits, never a JSON number."""
    return {"amount": f"{amount:f}", "currency": currency}


MoneyOutput = inline_serializer("Money", {"amount": serializers.CharField(), "currency": serializers.CharField()})
PriceOutput = inline_serializer(
    "Price",
    {
        "meter": serializers.CharField(),
        "per": serializers.IntegerField(help_text="The price is for this many units."),
        "price": MoneyOutput,
        "valid_from": serializers.DateTimeField(),
    },
)
FreeOutput = inline_serializer(
    "FreeUsage", {"reason": serializers.CharField(), "quantity": serializers.IntegerField()}
)
UsageLineOutput = inline_serializer(
    "UsageTotal",
    {
        "group": serializers.CharField(help_text="Meter code, job id or UTC date."),
        "meter": serializers.CharField(),
        "quantity": serializers.IntegerField(),
        "free": FreeOutput.__class__(many=True, help_text="Of the quantity: metered and not billed, and why."),
        "cost": MoneyOutput,
    },
)
PricesOutput = inline_serializer("Prices", {"results": PriceOutput.__class__(many=True)})
UsageOutput = inline_serializer(
    "Usage", {"group_by": serializers.CharField(), "results": UsageLineOutput.__class__(many=True)}
)


class PriceListApi(APIView):
    """Every price version, newest first. The one valid when usage happened is the one that counts."""

    permission = {"GET": Permission.BILLING_READ}

    @extend_schema(operation_id="prices_list", responses=PricesOutput)
    def get(self, request: TenantRequest) -> Response:
        refuse_query(request)
        return Response(
            {
                "results": [
                    {
                        "meter": row.meter,
                        "per": row.per,
                        "price": money(row.amount, row.currency),
                        "valid_from": row.valid_from,
                    }
                    for row in selectors.prices()
                ]
            }
        )


class UsageApi(APIView):
    """Usage and its cost, added up by meter, by job or by day."""

    permission = {"GET": Permission.BILLING_READ}

    @extend_schema(
        operation_id="usage",
        parameters=[
            OpenApiParameter("job", OpenApiTypes.UUID, description="Only this job."),
            OpenApiParameter("group_by", str, enum=["meter", "job", "day"], default="meter"),
        ],
        responses=UsageOutput,
    )
    def get(self, request: TenantRequest) -> Response:
        query = parse_query(UsageQuery, request.query_params)
        totals = selectors.usage_totals(request.tenant, job_id=query.job, group_by=query.group_by)
        return Response({"group_by": query.group_by, "results": [_row(total) for total in totals]})


def _row(total: UsageTotal) -> dict[str, object]:
    line = total.line
    return {
        "group": str(total.group),
        "meter": line.meter,
        "quantity": line.quantity,
        "free": [asdict(part) for part in line.free],
        "cost": money(line.amount, line.currency),
    }
