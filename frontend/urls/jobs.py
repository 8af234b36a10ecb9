"""The list of jobs."""

from django.urls import URLPattern, path

from frontend.views import jobs

urlpatterns: list[URLPattern] = [
    path("jobs/", jobs.job_table, name="jobs"),
]
