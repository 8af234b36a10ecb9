"""What a member sees first, and what is around every page."""

from django.urls import URLPattern, path

from frontend.views import frame, search
from frontend.views.home import home

urlpatterns: list[URLPattern] = [
    path("", home, name="home"),
    path("frame/", frame.shell_part, name="shell"),
    path("search/", search.search_page, name="search"),
]
