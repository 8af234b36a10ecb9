"""Datasets, their episodes, and uploads."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
