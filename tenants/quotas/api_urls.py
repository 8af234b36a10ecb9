"""Routes of the quotas app under /api/v1/."""

from django.urls import path

from tenants.quotas import api

urlpatterns = [
    path("quotas", api.QuotaListApi.as_view()),
    path("projects/<uuid:project_id>/quotas/<slug:resource>", api.ProjectQuotaApi.as_view()),
]
