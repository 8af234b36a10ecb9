"""One job, and the parts of its page."""

from django.urls import URLPattern, path

from frontend.views import job, results

urlpatterns: list[URLPattern] = [
    path("jobs/<uuid:job_id>/", job.job_page, name="job"),
    path("jobs/<uuid:job_id>/cancel/", job.job_cancel_page, name="job_cancel"),
    path("jobs/<uuid:job_id>/import/", job.job_import_page, name="job_import"),
    path("jobs/<uuid:job_id>/made/", results.job_made, name="job_made"),
    path("jobs/<uuid:job_id>/videos/", results.job_videos, name="job_videos"),
    path("jobs/<uuid:job_id>/episodes/", results.job_episodes, name="job_episodes"),
]
