"""REST: a job's log, by pages in both directions or as one text."""

from typing import Annotated, Literal, Self
from uuid import UUID

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from pydantic import Field, model_validator
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from jobs.selectors.logs import LogFilter, LogLevel, log_page, log_text
from tenants.bodies import parse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.tables import in_chunks

LINES_MAX = 2000
LINES_DEFAULT = 500
TEXT = "text/plain"

LogLineOutput = inline_serializer(
    "LogLine",
    {
        "seq": serializers.IntegerField(),
        "attempt": serializers.IntegerField(),
        "level": serializers.ChoiceField(choices=[*LogLevel, "state"], help_text="`state`: a change of state."),
        "state": serializers.CharField(help_text="The new state; empty for a line of the log."),
        "message": serializers.CharField(),
        "occurred_at": serializers.DateTimeField(),
    },
)
LogsOutput = inline_serializer(
    "Logs",
    {
        "lines": LogLineOutput.__class__(many=True),
        "seq": serializers.IntegerField(help_text="Pass it as `after` for what follows."),
        "older": serializers.BooleanField(help_text="There are lines before the first of these."),
        "newer": serializers.BooleanField(help_text="There may be lines after the last of these."),
    },
)


class TextRenderer(JSONRenderer):
    """Makes plain text negotiable. The view sends the lines itself; what is left to render is a refusal, in JSON."""

    media_type = TEXT
    format = "text"


class LogsQuery(Message):
    """Which lines, and from where."""

    after: Annotated[int | None, Field(ge=0, description="The first lines after this number.")] = None
    before: Annotated[int | None, Field(ge=0, description="The last lines before this number.")] = None
    limit: Annotated[int, Field(ge=1, le=LINES_MAX)] = LINES_DEFAULT
    q: Annotated[str, Field(max_length=200, description="Part of the text.")] = ""
    level: LogLevel | None = None
    attempt: Annotated[int | None, Field(ge=0, description="Only lines of this attempt.")] = None
    format: Literal["json", "text"] | None = None

    @model_validator(mode="after")
    def _one_direction(self) -> Self:
        if self.after is not None and self.before is not None:
            raise ValueError("after and before exclude each other")
        return self

    @property
    def wanted(self) -> LogFilter:
        return LogFilter(query=self.q, level=self.level, attempt=self.attempt)


class JobLogsApi(APIView):
    """What a job said."""

    permission = {"GET": Permission.JOBS_READ}
    renderer_classes = [JSONRenderer, TextRenderer]

    @extend_schema(
        operation_id="jobs_logs",
        parameters=[
            OpenApiParameter("after", int, description="The first lines after this number."),
            OpenApiParameter("before", int, description="The last lines before this number. Neither: the newest."),
            OpenApiParameter("limit", int, default=LINES_DEFAULT, description=f"1 to {LINES_MAX}."),
            OpenApiParameter("q", str, description="Part of the text, without regard to case."),
            OpenApiParameter("level", str, enum=list(LogLevel), description="This level or a graver one."),
            OpenApiParameter("attempt", int, description="Only lines of this attempt."),
        ],
        responses={(200, "application/json"): LogsOutput, (200, TEXT): OpenApiTypes.STR},
    )
    def get(self, request: TenantRequest, job_id: UUID) -> HttpResponseBase:
        """Lines in order. As text (`Accept: text/plain` or `format=text`) every line there is, streamed."""
        query = parse_query(LogsQuery, request.query_params)
        renderer = request.accepted_renderer
        if renderer is not None and renderer.format == TextRenderer.format:
            return _download(request, job_id, query.wanted)
        page = log_page(
            request.tenant, job_id, wanted=query.wanted, limit=query.limit, after=query.after, before=query.before
        )
        return Response(LogsOutput.__class__(page).data)


def _download(request: TenantRequest, job_id: UUID, wanted: LogFilter) -> StreamingHttpResponse:
    lines = log_text(request.tenant, job_id, wanted=wanted)
    answer = StreamingHttpResponse(in_chunks(lines), content_type=f"{TEXT}; charset=utf-8")
    answer["Content-Disposition"] = content_disposition_header(True, f"log-{job_id}.txt")
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
