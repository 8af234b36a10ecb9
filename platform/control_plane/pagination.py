"""Cursor pagination of every list: stable under inserts, no counting."""

from rest_framework.pagination import CursorPagination


class CreatedCursorPagination(CursorPagination):
    """Newest first; ``?limit=`` up to 200, ``next`` and ``previous`` are links."""

    ordering = ("-created_at", "-pk")
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200
