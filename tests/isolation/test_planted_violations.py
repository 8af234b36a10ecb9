"""The matrix must notice what it is there for: views planted here break a rule each, and each is found."""

import types
from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import clear_url_caches, path
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.models import Job
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.scope import platform_scope
from tests.isolation.page_table import PAGES
from tests.isolation.rest_table import PUBLIC, REST
from tests.support.jobs import make_job
from tests.support.routes import api_routes, page_routes, undeclared_permissions
from tests.support.story import Story


class NoPermission(APIView):
    """Says nothing of who may call it."""

    def get(self, request: TenantRequest) -> Response:
        return Response({})


class HalfPermission(NoPermission):
    """Forgot one of its methods."""

    permission = {"GET": Permission.JOBS_READ}

    def delete(self, request: TenantRequest) -> Response:
        return Response(status=204)


class Leak(APIView):
    """Looks rows up without regard to the tenant."""

    permission = {"GET": Permission.JOBS_READ}

    def get(self, request: TenantRequest, job_id: Any) -> Response:
        with platform_scope():
            return Response({"name": Job.objects.get(pk=job_id).name})


def page(request: Any) -> HttpResponse:
    return HttpResponse("anybody may read this")


@pytest.fixture
def planted(settings: Any) -> types.ModuleType:
    """The platform's routes and these."""
    from control_plane import urls

    module = types.ModuleType("planted_urls")
    own = [
        path("api/v1/no-permission", NoPermission.as_view()),
        path("api/v1/half-permission", HalfPermission.as_view()),
        path("api/v1/leak/<uuid:job_id>", Leak.as_view()),
        path("planted/", page),
    ]
    vars(module).update(vars(urls) | {"__name__": "planted_urls", "urlpatterns": [*own, *urls.urlpatterns]})
    settings.ROOT_URLCONF = module
    clear_url_caches()
    yield module
    clear_url_caches()


def test_a_view_without_a_permission_is_found_and_refuses_everybody(planted: types.ModuleType, story: Story):
    assert undeclared_permissions(PUBLIC, planted) == ["/api/v1/no-permission", "/api/v1/half-permission"]
    assert story.alice.api.get("/api/v1/no-permission").status_code == 403
    assert story.alice.api.delete("/api/v1/half-permission").status_code == 403


def test_an_undeclared_route_of_any_kind_is_found(planted: types.ModuleType):
    assert set(api_routes(planted)) - set(REST) - PUBLIC == {
        "GET /api/v1/no-permission",
        "GET /api/v1/half-permission",
        "DELETE /api/v1/half-permission",
        "GET /api/v1/leak/<uuid:job_id>",
    }
    assert set(page_routes(planted)) - {route.split(" ")[1] for route in PAGES} == {"/planted/"}


def test_a_look_up_that_leaks_does_not_answer_what_a_row_must(planted: types.ModuleType, story: Story):
    """The table says 404 for the stranger; this view says 200."""
    job = make_job(story.alice)
    assert story.charlie.api.get(f"/api/v1/leak/{job.pk}").status_code == 200
    assert story.charlie.api.get(f"/api/v1/jobs/{job.pk}").status_code == 404
