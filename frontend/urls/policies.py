"""Policies: what jobs made and others start from."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
