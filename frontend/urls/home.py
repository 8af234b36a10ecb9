"""What a member sees first, and what is around every page."""

from django.urls import URLPattern, path
from django.views.generic import RedirectView

from frontend.views import frame

urlpatterns: list[URLPattern] = [
    path("", RedirectView.as_view(pattern_name="frontend:jobs"), name="home"),
    path("frame/", frame.shell_part, name="shell"),
]
