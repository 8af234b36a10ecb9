"""The console's pages. Log-in, log-out and the tenant switch belong to the project (`control_plane.urls`)."""

from django.urls import path
from django.views.generic import RedirectView

from frontend.views import jobs, runtime

app_name = "frontend"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="frontend:jobs"), name="home"),
    path("jobs/", jobs.job_table, name="jobs"),
    path("jobs/<uuid:job_id>/", jobs.job_page, name="job"),
    path("jobs/<uuid:job_id>/cancel/", jobs.job_cancel_page, name="job_cancel"),
    path("runtime/", runtime.runtime_page, name="runtime"),
    path("runtime/data/", runtime.runtime_data, name="runtime_data"),
]
