"""REST: the audit log, page by page and as CSV."""

from collections.abc import Iterator
from typing import Annotated, Any

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from gpu_runtime.protocol.base import Message
from tenants.api.roles import Moment
from tenants.audit.models import ActorKind, AuditEvent
from tenants.audit.selectors import audit_list
from tenants.bodies import parse_query
from tenants.listing import ListView, PageQuery
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.tables import MEDIA_TYPE, CsvRenderer, csv_answer
from tenants.whole_tenant import ForTheWholeTenant

_COLUMNS = (
    *("id", "occurred_at", "actor_kind", "actor_id", "actor_name", "verb", "object_type", "object_id"),
    *("object_name", "before", "after", "reason", "address", "request_id"),
)
_ROWS_PER_QUERY = 1000
_FILTERS = [
    OpenApiParameter("verb", str, description="One, `member.removed`, or all of a noun, `member.`"),
    OpenApiParameter("actor", str, description="E-mail address, key's name with prefix, or id."),
    OpenApiParameter("object_id", str),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="Inclusive."),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Exclusive."),
]


class AuditFilter(Message):
    """Which acts."""

    verb: Annotated[str | None, Field(max_length=60)] = None
    actor: Annotated[str | None, Field(max_length=254)] = None
    object_id: Annotated[str | None, Field(max_length=64)] = None
    since: Moment | None = None
    until: Moment | None = None


class AuditQuery(PageQuery, AuditFilter):
    """Which acts, and which page of them."""


class AuditEventOutput(serializers.ModelSerializer[AuditEvent]):
    actor_kind = serializers.ChoiceField(ActorKind.choices)
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)

    class Meta:
        model = AuditEvent
        fields = _COLUMNS


class AuditListApi(ForTheWholeTenant, ListView):
    """Who did what in the tenant, newest first. Nothing in it can be changed or deleted."""

    permission = {"GET": Permission.AUDIT_READ}
    serializer_class = AuditEventOutput
    query = AuditQuery
    newest_first = ("-occurred_at", "-pk")

    def rows(self, request: TenantRequest, query: AuditQuery):
        return audit_list(request.tenant, **_filters(query))

    @extend_schema(operation_id="audit_list", parameters=_FILTERS)
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)


class AuditCsvApi(ForTheWholeTenant):
    """The audit log as a file."""

    permission = {"GET": Permission.AUDIT_READ}
    renderer_classes = [JSONRenderer, CsvRenderer]

    @extend_schema(operation_id="audit_csv", parameters=_FILTERS, responses={(200, MEDIA_TYPE): OpenApiTypes.STR})
    def get(self, request: TenantRequest) -> HttpResponseBase:
        """Every act that matches, however many; `before` and `after` are JSON."""
        query = parse_query(AuditFilter, request.query_params)
        events = audit_list(request.tenant, **_filters(query))
        return csv_answer(_COLUMNS, _rows(events), name="audit")


def _filters(query: AuditFilter) -> dict[str, Any]:
    return query.model_dump(include=set(AuditFilter.model_fields))


def _rows(events: QuerySet[AuditEvent]) -> Iterator[list[Any]]:
    """Newest first, a page of rows per query: no cursor stays open while a slow client reads."""
    page = list(events.order_by("-pk")[:_ROWS_PER_QUERY])
    while page:
        for event in page:
            told = AuditEventOutput(event).data
            yield [_cell(told[name]) for name in _COLUMNS]
        page = list(events.filter(pk__lt=page[-1].pk).order_by("-pk")[:_ROWS_PER_QUERY])


def _cell(value: Any) -> Any:
    """JSON objects as text; their braces keep them from being formulas."""
    return JSONRenderer().render(value).decode() if isinstance(value, dict) else value
