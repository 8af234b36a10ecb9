"""Routes of the webhooks app under /api/v1/."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
