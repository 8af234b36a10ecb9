"""Several jobs side by side."""

from django.urls import URLPattern, path

from frontend.views import compare

urlpatterns: list[URLPattern] = [
    path("jobs/compare/", compare.compare_page, name="compare"),
    path("jobs/compare/csv/", compare.compare_csv, name="compare_csv"),
]
