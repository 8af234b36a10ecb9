"""What a member sees first."""

from django.urls import URLPattern, path
from django.views.generic import RedirectView

urlpatterns: list[URLPattern] = [
    path("", RedirectView.as_view(pattern_name="frontend:jobs"), name="home"),
]
