"""ETag, If-Match and If-None-Match: nobody overwrites what they have not seen."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from tenants.errors import ApplicationError
from tenants.requests import TenantRequest

MATCH_PARAMETER = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, required=True, description="The ETag of what you mean to change."
)


def etag_of(version: object) -> str:
    """The strong ETag of a row's version, or of a hash."""
    return f'"{version}"'


def require_match(request: TenantRequest, version: object) -> None:
    """Refuse a change without `If-Match` (428) and one of another version than the caller saw (412).

    Call it with the row locked, inside the transaction of the change.
    """
    wanted = request.headers.get("If-Match")
    if wanted is None:
        raise ApplicationError(
            code="precondition_required",
            status=428,
            detail="This change needs If-Match with the ETag of GET.",
        )
    if etag_of(version) not in _tags(wanted) and wanted.strip() != "*":
        raise ApplicationError(
            code="precondition_failed",
            status=412,
            detail=f"It was changed meanwhile: If-Match says {wanted}, the present ETag is {etag_of(version)}.",
        )


def tagged(request: TenantRequest, version: object, body: Any) -> Response:
    """The answer of a GET with its ETag; 304 without a body if the caller has this version (`If-None-Match`)."""
    headers = {"ETag": etag_of(version)}
    known = request.headers.get("If-None-Match", "")
    if etag_of(version) in {tag.removeprefix("W/") for tag in _tags(known)}:
        return Response(status=304, headers=headers)
    return Response(body, headers=headers)


def _tags(header: str) -> set[str]:
    return {part.strip() for part in header.split(",")}
