"""Routes of the billing app under /api/v1/."""

from django.urls import path

from tenants.billing import api

urlpatterns = [
    path("prices", api.PriceListApi.as_view()),
    path("usage", api.UsageApi.as_view()),
]
