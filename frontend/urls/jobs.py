"""The list of jobs, and what is done to several of them."""

from django.urls import URLPattern, path

from frontend.views import jobs

urlpatterns: list[URLPattern] = [
    path("jobs/", jobs.job_table, name="jobs"),
    path("jobs/csv/", jobs.jobs_csv, name="jobs_csv"),
    path("jobs/act/", jobs.jobs_act_page, name="jobs_act"),
]
