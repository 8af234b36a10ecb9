"""One job, and the parts of its page."""

from django.urls import URLPattern, path

from frontend.views import results
from frontend.views.job import acts, page

urlpatterns: list[URLPattern] = [
    path("jobs/<uuid:job_id>/", page.job_page, name="job"),
    path("jobs/<uuid:job_id>/cancel/", acts.job_cancel_page, name="job_cancel"),
    path("jobs/<uuid:job_id>/import/", acts.job_import_page, name="job_import"),
    path("jobs/<uuid:job_id>/made/", results.job_made, name="job_made"),
    path("jobs/<uuid:job_id>/videos/", results.job_videos, name="job_videos"),
    path("jobs/<uuid:job_id>/episodes/", results.job_episodes, name="job_episodes"),
]
