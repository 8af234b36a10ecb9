"""The form that submits a job."""

from django.urls import URLPattern, path

from frontend.views import new_job

urlpatterns: list[URLPattern] = [
    path("jobs/new/", new_job.job_new, name="job_new"),
    path("jobs/new/fields/", new_job.job_new_fields, name="job_new_fields"),
    path("jobs/new/estimate/", new_job.job_new_estimate, name="job_new_estimate"),
]
