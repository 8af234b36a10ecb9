"""The form that submits a job."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
