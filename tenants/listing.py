"""What every list and read view shares: no query parameter is silently ignored."""

from typing import Annotated, Any

from pydantic import Field
from rest_framework.generics import GenericAPIView
from rest_framework.response import Response

from gpu_runtime.protocol.base import Message
from tenants.bodies import parse_query
from tenants.errors import ApplicationError
from tenants.requests import TenantRequest


class NoQuery(Message):
    """A route without parameters."""


class PageQuery(Message):
    """Parameters of every list."""

    cursor: Annotated[str | None, Field(max_length=500)] = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


def refuse_query(request: TenantRequest) -> None:
    """Refuse any query parameter. Raises ApplicationError 422 naming it."""
    parse_query(NoQuery, request.query_params)


class ListView(GenericAPIView):
    """A cursor-paginated list of ``rows(request)`` as ``serializer_class``; ``query`` holds its parameters."""

    query: type[Message] = PageQuery

    def rows(self, request: TenantRequest, query: Any) -> Any:
        raise ApplicationError(code="not_found", status=404, detail="There is no such page.")

    def list(self, request: TenantRequest) -> Response:
        query = parse_query(self.query, request.query_params)
        page = self.paginate_queryset(self.rows(request, query))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)
