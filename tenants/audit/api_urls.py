"""Routes of the audit app under /api/v1/."""

from django.urls import path

from tenants.audit import api

urlpatterns = [
    path("audit", api.AuditListApi.as_view()),
    path("audit/csv", api.AuditCsvApi.as_view()),
]
