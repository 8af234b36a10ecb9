"""Cursor pagination of every list: stable under inserts, no counting."""

from datetime import UTC
from typing import Any

from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination

from tenants.errors import ApplicationError, FieldError


class CreatedCursorPagination(CursorPagination):
    """Newest first; ``?limit=`` up to 200, ``next`` and ``previous`` are links."""

    ordering = ("-created_at", "-pk")
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def get_ordering(self, request: Any, queryset: Any, view: Any) -> tuple[str, ...]:
        """Newest first by another time than `created_at` where the view says so."""
        return getattr(view, "newest_first", self.ordering)

    def get_paginated_response_schema(self, schema: Any) -> dict[str, Any]:
        """Links are null at both ends; OpenAPI 3.1 says so by type."""
        link = {"type": ["string", "null"], "format": "uri"}
        properties = {"next": link, "previous": link, "results": schema}
        return {"type": "object", "required": list(properties), "properties": properties}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        limit = {"type": "integer", "minimum": 1, "maximum": self.max_page_size, "default": self.page_size}
        cursor = {"type": "string", "maxLength": 500}
        return [
            _parameter("cursor", "Of the links in `next` and `previous`.", cursor),
            _parameter("limit", "Rows of one page.", limit),
        ]

    def decode_cursor(self, request: Any) -> Any:
        """Raises ApplicationError 422 for a cursor that no answer ever contained."""
        try:
            cursor = super().decode_cursor(request)
        except NotFound:
            raise _invalid() from None
        if cursor is not None and cursor.position is not None and not _is_moment(str(cursor.position)):
            raise _invalid()
        return cursor


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _is_moment(text: str) -> bool:
    try:
        moment = parse_datetime(text)
        return moment is not None and moment.tzinfo is not None and moment.astimezone(UTC) is not None
    except (ValueError, OverflowError):
        return False


def _invalid() -> ApplicationError:
    detail = "It is no cursor of ours. Allowed: those of the links in `next` and `previous`."
    return ApplicationError(
        code="validation_failed",
        status=422,
        detail="The query string is not valid.",
        errors=(FieldError(pointer="?cursor", code="cursor_invalid", detail=detail),),
    )
