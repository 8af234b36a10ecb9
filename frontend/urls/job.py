"""One job, and the parts of its page."""

from django.urls import URLPattern, path

from frontend.views import results
from frontend.views.job import acts, notes, page, spec

urlpatterns: list[URLPattern] = [
    path("jobs/<uuid:job_id>/", page.job_page, name="job"),
    path("jobs/<uuid:job_id>/now/", page.job_now, name="job_now"),
    path("jobs/<uuid:job_id>/spec/", spec.job_spec, name="job_spec"),
    path("jobs/<uuid:job_id>/describe/", notes.job_describe_page, name="job_describe"),
    path("jobs/<uuid:job_id>/preview/", notes.job_note_preview, name="job_note_preview"),
    path("jobs/<uuid:job_id>/retry/", acts.job_retry_page, name="job_retry"),
    path("jobs/<uuid:job_id>/cancel/", acts.job_cancel_page, name="job_cancel"),
    path("jobs/<uuid:job_id>/import/", acts.job_import_page, name="job_import"),
    path("jobs/<uuid:job_id>/made/", results.job_made, name="job_made"),
    path("jobs/<uuid:job_id>/videos/", results.job_videos, name="job_videos"),
    path("jobs/<uuid:job_id>/episodes/", results.job_episodes, name="job_episodes"),
]
