"""The runtime as its tenants see it."""

from django.urls import URLPattern, path

from frontend.views import runtime

urlpatterns: list[URLPattern] = [
    path("runtime/", runtime.runtime_page, name="runtime"),
]
