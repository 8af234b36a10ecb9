"""Datasets, their episodes, and uploads."""

from django.urls import URLPattern, path

from frontend.views import datasets

_ONE = "datasets/<uuid:dataset_id>/"

urlpatterns: list[URLPattern] = [
    path("datasets/", datasets.dataset_table, name="datasets"),
    path("datasets/upload/", datasets.dataset_upload, name="dataset_upload"),
    path(_ONE, datasets.dataset_page, name="dataset"),
    path(f"{_ONE}spread/", datasets.dataset_spread, name="dataset_spread"),
    path(f"{_ONE}delete/", datasets.dataset_remove, name="dataset_delete"),
    path(f"{_ONE}keep/", datasets.dataset_keep, name="dataset_keep"),
    path(f"{_ONE}versions/<int:number>/delete/", datasets.version_remove, name="dataset_version_delete"),
]
