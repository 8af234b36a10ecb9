"""Routes of the datasets app under /api/v1/."""

from django.urls import path

from tenants.datasets import api

urlpatterns = [
    path("datasets", api.DatasetListApi.as_view()),
    path("datasets/<uuid:dataset_id>", api.DatasetApi.as_view()),
    path("datasets/<uuid:dataset_id>/versions/<int:number>", api.DatasetVersionByNumberApi.as_view()),
    path("dataset-versions/<uuid:version_id>", api.DatasetVersionApi.as_view()),
]
