"""What every screen has in common: a permission, the platform's scope, the frame, refusals in words."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse

from tenants.errors import ApplicationError
from tenants.models import User
from tenants.scope import platform_scope

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


def screen(permission: str) -> Callable[[View[P]], View[P]]:
    """A page for operators with ``permission``; rows are read, and the page is rendered, across tenants."""

    def of(view: View[P]) -> View[P]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            require(request, permission)
            with platform_scope():
                answer = view(request, *args, **kwargs)
                return answer.render() if isinstance(answer, TemplateResponse) else answer

        return guarded

    return of


def require(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied


def operator_of(request: HttpRequest) -> User:
    """Who acts. Raises PermissionDenied for anybody that is not staff."""
    if not isinstance(request.user, User) or not request.user.is_staff:
        raise PermissionDenied
    return request.user


def framed(request: HttpRequest, template: str, title: str, *, status: int = 200, **context: Any) -> TemplateResponse:
    """A page inside the site's frame."""
    frame = admin.site.each_context(request) | {"title": title}
    return TemplateResponse(request, f"operator/{template}", frame | context)


def refused(error: ApplicationError) -> str:
    """A refusal of a service as one text for a person."""
    return " ".join([error.detail, *(field.detail for field in error.errors)]).strip()
