"""REST: what was used, and what it came to."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Self
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from pydantic import Field, PlainValidator, model_validator
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants.billing.models import Meter
from tenants.billing.usage import selectors
from tenants.billing.usage.selectors import GroupBy, UsageFilter, UsageTotal
from tenants.bodies import parse_query
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.tables import MEDIA_TYPE, CsvRenderer, csv_answer

ROWS_MAX = 10_000  # of one JSON answer
CSV_COLUMNS = ("group", "label", "meter", "quantity", "free_quantity", "free_reasons", "cost", "currency")


_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)  # fromisoformat takes other forms too, which we do not promise


def _day(text: object) -> date:
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        raise ValueError("a day is written like 2026-05-01")
    return date.fromisoformat(text)


Day = Annotated[date, PlainValidator(_day)]


class UsageQuery(Message):
    """Which usage, and how to add it up."""

    job: UUID | None = None
    project: UUID | None = None
    key: UUID | None = None
    meter: Meter | None = None
    since: Day | None = None
    until: Day | None = None
    group_by: Annotated[GroupBy, Field(description="What the rows are about.")] = "meter"

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since and self.until and self.until <= self.since:
            raise ValueError(f"until must be after since; got {self.since} and {self.until}")
        return self


def money(amount: Decimal, currency: str) -> dict[str, str]:
    """The API's form of money: a string of exact digits, never a JSON number."""
    return {"amount": f"{amount:f}", "currency": currency}


MoneyOutput = inline_serializer("Money", {"amount": serializers.CharField(), "currency": serializers.CharField()})
FreeOutput = inline_serializer(
    "FreeUsage", {"reason": serializers.CharField(), "quantity": serializers.IntegerField()}
)
UsageLineOutput = inline_serializer(
    "UsageTotal",
    {
        "group": serializers.CharField(
            allow_null=True, help_text="Meter code, UTC date, or id of a job, project or key; null: of none."
        ),
        "label": serializers.CharField(help_text="A project's slug, or a key's name and prefix; else empty."),
        "meter": serializers.CharField(),
        "quantity": serializers.IntegerField(),
        "free": FreeOutput.__class__(many=True, help_text="Of the quantity: metered and not billed, and why."),
        "cost": MoneyOutput,
    },
)
UsageOutput = inline_serializer(
    "Usage", {"group_by": serializers.CharField(), "results": UsageLineOutput.__class__(many=True)}
)
USAGE_PARAMETERS = [
    OpenApiParameter("job", OpenApiTypes.UUID, description="Only this job."),
    OpenApiParameter("project", OpenApiTypes.UUID, description="Only jobs of this project."),
    OpenApiParameter("key", OpenApiTypes.UUID, description="Only jobs submitted with this API key."),
    OpenApiParameter("meter", str, enum=Meter.values, description="Only this meter."),
    OpenApiParameter("since", OpenApiTypes.DATE, description="Only what happened on this UTC day or later."),
    OpenApiParameter("until", OpenApiTypes.DATE, description="Only what happened before this UTC day."),
    OpenApiParameter("group_by", str, enum=["meter", "job", "day", "project", "key"], default="meter"),
]


class UsageApi(APIView):
    """Usage and its cost, added up by meter, job, day, project or API key."""

    permission = {"GET": Permission.BILLING_READ}

    @extend_schema(operation_id="usage", parameters=USAGE_PARAMETERS, responses=UsageOutput)
    def get(self, request: TenantRequest) -> Response:
        query, totals = _totals(request)
        if len(totals) > ROWS_MAX:
            raise ApplicationError(
                code="too_many_rows",
                status=422,
                detail=f"{len(totals)} rows are more than {ROWS_MAX}: narrow since and until, or take /usage/csv.",
            )
        return Response({"group_by": query.group_by, "results": [_row(total) for total in totals]})


class UsageCsvApi(APIView):
    """The same as a table, of any length."""

    permission = {"GET": Permission.BILLING_READ}
    renderer_classes = [JSONRenderer, CsvRenderer]

    @extend_schema(
        operation_id="usage_csv",
        parameters=USAGE_PARAMETERS,
        responses={(200, MEDIA_TYPE): OpenApiResponse(OpenApiTypes.STR, description=", ".join(CSV_COLUMNS))},
    )
    def get(self, request: TenantRequest) -> StreamingHttpResponse:
        query, totals = _totals(request)
        return csv_answer(CSV_COLUMNS, _cells(totals), name=f"usage-by-{query.group_by}")


def _totals(request: TenantRequest) -> tuple[UsageQuery, list[UsageTotal]]:
    """What was asked for. To a key of one project there is no usage of another."""
    query = parse_query(UsageQuery, request.query_params)
    bound = request.actor.project
    if bound is not None and query.project not in (None, bound.pk):
        return query, []
    wanted = UsageFilter(
        since=query.since,
        until=query.until,
        job_id=query.job,
        project_id=bound.pk if bound is not None else query.project,
        key_id=query.key,
        meter=query.meter,
    )
    return query, selectors.usage_totals(request.tenant, group_by=query.group_by, wanted=wanted)


def _row(total: UsageTotal) -> dict[str, object]:
    line = total.line
    return {
        "group": None if total.group is None else str(total.group),
        "label": total.label,
        "meter": line.meter,
        "quantity": line.quantity,
        "free": [asdict(part) for part in line.free],
        "cost": money(line.amount, line.currency),
    }


def _cells(totals: list[UsageTotal]) -> Iterator[tuple[Any, ...]]:
    for total in totals:
        line = total.line
        yield (
            "" if total.group is None else str(total.group),
            total.label,
            line.meter,
            line.quantity,
            sum(part.quantity for part in line.free),
            "; ".join(f"{part.reason} {part.quantity}" for part in line.free),
            f"{line.amount:f}",
            line.currency,
        )
