"""The console's pages. Log-in, log-out and the tenant switch belong to the project (`control_plane.urls`)."""

from django.urls import path
from django.views.generic import RedirectView

from frontend.views import billing, job, jobs, results, runtime

app_name = "frontend"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="frontend:jobs"), name="home"),
    path("jobs/", jobs.job_table, name="jobs"),
    path("jobs/<uuid:job_id>/", job.job_page, name="job"),
    path("jobs/<uuid:job_id>/cancel/", job.job_cancel_page, name="job_cancel"),
    path("jobs/<uuid:job_id>/import/", job.job_import_page, name="job_import"),
    path("jobs/<uuid:job_id>/made/", results.job_made, name="job_made"),
    path("jobs/<uuid:job_id>/videos/", results.job_videos, name="job_videos"),
    path("jobs/<uuid:job_id>/episodes/", results.job_episodes, name="job_episodes"),
    path("billing/invoices/", billing.invoice_table, name="invoices"),
    path("billing/invoices/<uuid:invoice_id>/", billing.invoice_page, name="invoice"),
    path("runtime/", runtime.runtime_page, name="runtime"),
    path("runtime/data/", runtime.runtime_data, name="runtime_data"),
]
