"""Routes of the datasets app under /api/v1/."""

from django.urls import path

from tenants.datasets import api, preview_api, spread_api, upload_api

_VERSION = "dataset-versions/<uuid:version_id>"

urlpatterns = [
    path("datasets", api.DatasetListApi.as_view()),
    path("datasets/<uuid:dataset_id>", api.DatasetApi.as_view()),
    path("datasets/<uuid:dataset_id>/versions/<int:number>", api.DatasetVersionByNumberApi.as_view()),
    path(_VERSION, api.DatasetVersionApi.as_view()),
    path(f"{_VERSION}/lineage", preview_api.LineageApi.as_view()),
    path(f"{_VERSION}/preview", preview_api.PreviewApi.as_view()),
    path(f"{_VERSION}/episodes/<int:episode>", preview_api.EpisodeApi.as_view()),
    path(f"{_VERSION}/episodes/<int:episode>/frames/<str:camera>", preview_api.FrameApi.as_view()),
    path(f"{_VERSION}/episodes/<int:episode>/videos/<str:camera>", spread_api.VideoApi.as_view()),
    path(f"{_VERSION}/distribution", spread_api.DistributionApi.as_view()),
    path("uploads", upload_api.UploadListApi.as_view()),
    path("uploads/<uuid:upload_id>", upload_api.UploadApi.as_view()),
    path("uploads/<uuid:upload_id>/complete", upload_api.UploadCompleteApi.as_view()),
]
