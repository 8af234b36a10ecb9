"""Every refusal of the API as problem+json (RFC 9457), whoever raised it."""

import json
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from pydantic import ValidationError as PydanticError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from tenants.bodies import refusal
from tenants.errors import ApplicationError, FieldError

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:joynexus:problem:"


def problem_body(
    request: Any,
    *,
    status: int,
    code: str,
    detail: str,
    errors: tuple[FieldError, ...] = (),
    extra: dict[str, object] | None = None,
) -> dict[str, Any]:
    """The JSON members of a problem; ``type`` ends with the stable code."""
    return {
        **(extra or {}),
        "type": TYPE_PREFIX + code.replace("_", "-"),
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": request.path,
        "errors": [{"pointer": e.pointer, "code": e.code, "detail": e.detail} for e in errors],
        "request_id": getattr(request, "request_id", None),
    }


def problem_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Django REST framework's exception handler. None (a logged 500) for what nobody foresaw."""
    request = context["request"]
    refused = _as_application_error(exc)
    if refused is None:
        return None
    set_rollback()
    body = problem_body(
        request,
        status=refused.status,
        code=refused.code,
        detail=refused.detail,
        errors=refused.errors,
        extra=refused.extra,
    )
    response = Response(body, status=refused.status, content_type=MEDIA_TYPE, headers=refused.headers)
    if isinstance(exc, exceptions.APIException):
        if challenge := getattr(exc, "auth_header", None):
            response["WWW-Authenticate"] = challenge
        if wait_s := getattr(exc, "wait", None):
            response["Retry-After"] = f"{wait_s:.0f}"
    return response


def _as_application_error(exc: Exception) -> ApplicationError | None:
    match exc:
        case ApplicationError():
            return exc
        case PydanticError():
            return refusal(exc, None)
        case Http404():
            return ApplicationError(code="not_found", status=404, detail="There is no such page.")
        case PermissionDenied():
            return ApplicationError(code="permission_denied", status=403, detail="You may not do this.")
        case exceptions.ValidationError():
            return ApplicationError(
                code="validation_failed",
                status=422,
                detail="The request is not valid.",
                errors=_field_errors(exc.detail),
            )
        case exceptions.APIException():
            return ApplicationError(code=str(exc.default_code), status=exc.status_code, detail=str(exc.detail))
    return None


def _field_errors(detail: Any, at: str = "") -> tuple[FieldError, ...]:
    """Flatten a serializer's nested errors into JSON pointers."""
    if isinstance(detail, dict):
        return tuple(error for name, part in detail.items() for error in _field_errors(part, f"{at}/{name}"))
    if isinstance(detail, list):
        nested = [(f"{at}/{i}" if isinstance(part, dict | list) else at, part) for i, part in enumerate(detail)]
        return tuple(error for pointer, part in nested for error in _field_errors(part, pointer))
    return (FieldError(pointer=at, code=str(getattr(detail, "code", "invalid")), detail=str(detail)),)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler400`: what Django refused before a view was reached."""
    if not is_api(request):
        return defaults.bad_request(request, exception)
    return plain_problem(request, status=400, code="bad_request", detail="The request is malformed.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler403`."""
    if not is_api(request):
        return defaults.permission_denied(request, exception)
    return plain_problem(request, status=403, code="permission_denied", detail="You may not do this.")


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler404`: routes that do not exist."""
    if not is_api(request):
        return defaults.page_not_found(request, exception)
    return plain_problem(request, status=404, code="not_found", detail="There is no such page.")


def server_error(request: HttpRequest) -> HttpResponse:
    """`handler500`: says nothing about the fault; the log has it under the same request id."""
    if not is_api(request):
        return defaults.server_error(request)
    return plain_problem(
        request, status=500, code="internal_error", detail="Something went wrong on our side. Quote the request id."
    )


def is_api(request: HttpRequest) -> bool:
    """Whether an answer to this request is read by programs."""
    return request.path == "/api" or request.path.startswith("/api/")


def plain_problem(request: HttpRequest, *, status: int, code: str, detail: str) -> HttpResponse:
    """A problem from outside of Django REST framework."""
    body = problem_body(request, status=status, code=code, detail=detail)
    return HttpResponse(json.dumps(body), status=status, content_type=MEDIA_TYPE)
