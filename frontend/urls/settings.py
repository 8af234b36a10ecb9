"""Members, keys, webhooks, audit, appearance."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
