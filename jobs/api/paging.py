"""Cursor pagination of jobs in every order that an index gives: stable under inserts, nothing skipped or repeated.

DRF's own cursors know one column and count the rows that are equal in it, a thousand at most; jobs may well share a
name. Here a cursor is (value, number) of the row it stands at, and the number is one job's alone.
"""

import base64
import json
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from django.db.models import Q
from django.utils.dateparse import parse_datetime
from rest_framework.pagination import BasePagination
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from jobs.models import Job
from jobs.selectors.filters import JobSort, order_of
from tenants.errors import ApplicationError, FieldError

LIMIT, LIMIT_MAX = 50, 200
CURSOR_LENGTH_MAX = 1500  # a name of 200 characters of 4 bytes each, and the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCursor:
    """A place between two rows: after (``back``: before) the one of this ``value`` and ``number``."""

    sort: JobSort
    back: bool
    value: str  # of the column that is sorted by; times in ISO 8601
    number: int

    def text(self) -> str:
        parts = [self.sort.value, self.back, self.value, self.number]
        return base64.urlsafe_b64encode(json.dumps(parts, ensure_ascii=False).encode()).decode().rstrip("=")

    def beyond(self) -> Q:
        """The rows on the cursor's far side. The first condition is the index's, the second for equals."""
        way = "lt" if self.sort.falls != self.back else "gt"
        column, at = self.sort.column, self.value
        further = Q(**{f"{column}__{way}": at}) | Q(**{column: at, f"number__{way}": self.number})
        return Q(**{f"{column}__{way}e": at}) & further


def cursor_at(job: Job, sort: JobSort, *, back: bool) -> JobCursor:
    value = getattr(job, sort.column)
    return JobCursor(
        sort=sort, back=back, value=value if isinstance(value, str) else value.isoformat(), number=job.number
    )


def cursor_read(text: str, sort: JobSort) -> JobCursor:
    """Raises ApplicationError 422 for what no answer in this order ever contained."""
    try:
        parts = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        made, back, value, number = parts
        cursor = JobCursor(sort=JobSort(made), back=back, value=value, number=number)
        known = type(back) is bool and type(value) is str and type(number) is int and 0 <= number < 2**31
        fits = _is_moment(value) if sort.column == "created_at" else "\0" not in value
        if made != sort or not known or not fits:
            raise ValueError(text)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _invalid() from error
    return cursor


def _is_moment(text: str) -> bool:
    moment = parse_datetime(text)
    return moment is not None and moment.tzinfo is not None and moment.astimezone(UTC) is not None


class JobPagination(BasePagination):
    """`?limit=` up to 200; ``next`` and ``previous`` are links. The order is the query's ``sort``."""

    def paginate_queryset(self, queryset: Any, request: Any, view: Any = None) -> list[Any]:
        """The query string has been validated; one row more than the page says whether there is another."""
        params = request.query_params
        self.url, self.sort = request.build_absolute_uri(), JobSort(params.get("sort") or JobSort.NEWEST)
        limit = int(params.get("limit") or LIMIT)
        cursor = cursor_read(params["cursor"], self.sort) if params.get("cursor") else None
        back = cursor is not None and cursor.back
        rows = queryset.order_by(*order_of(self.sort, back=back))
        found: list[Job] = list((rows.filter(cursor.beyond()) if cursor else rows)[: limit + 1])
        page, more = found[:limit], len(found) > limit
        self.has_next, self.has_previous = (True, more) if back else (more, cursor is not None)
        self.page = page[::-1] if back else page
        return self.page

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"next": self._next(), "previous": self._previous(), "results": data})

    def _next(self) -> str | None:
        return self._link(cursor_at(self.page[-1], self.sort, back=False)) if self.has_next and self.page else None

    def _previous(self) -> str | None:
        return self._link(cursor_at(self.page[0], self.sort, back=True)) if self.has_previous and self.page else None

    def _link(self, cursor: JobCursor) -> str:
        return replace_query_param(remove_query_param(self.url, "cursor"), "cursor", cursor.text())

    def get_paginated_response_schema(self, schema: Any) -> dict[str, Any]:
        """Links are null at both ends; OpenAPI 3.1 says so by type."""
        link = {"type": ["string", "null"], "format": "uri"}
        properties = {"next": link, "previous": link, "results": schema}
        return {"type": "object", "required": list(properties), "properties": properties}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        limit = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT}
        return [
            _parameter(
                "cursor", "Of the links in `next` and `previous`.", {"type": "string", "maxLength": CURSOR_LENGTH_MAX}
            ),
            _parameter("limit", "Rows of one page.", limit),
        ]


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _invalid() -> ApplicationError:
    detail = "It is no cursor of ours in this order. Allowed: those of the links in `next` and `previous`."
    return ApplicationError(
        code="validation_failed",
        status=422,
        detail="The query string is not valid.",
        errors=(FieldError(pointer="?cursor", code="cursor_invalid", detail=detail),),
    )
