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

    def decode_cursor(self, request: Any) -> Any:
        """Raises ApplicationError 422 for a cursor that no answer ever contained."""
        try:
            cursor = super().decode_cursor(request)
        except NotFound:
            raise _invalid() from None
        if cursor is not None and cursor.position is not None and not _is_moment(str(cursor.position)):
            raise _invalid()
        return cursor


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
