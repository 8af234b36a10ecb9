"""The console's pages, one module per section. Log-in, log-out and the tenant switch are in `control_plane.urls`."""

from frontend.urls import billing, compare, datasets, home, job, jobs, new_job, policies, runtime, settings

app_name = "frontend"

urlpatterns = [
    *home.urlpatterns,
    *jobs.urlpatterns,
    *new_job.urlpatterns,
    *compare.urlpatterns,
    *job.urlpatterns,
    *datasets.urlpatterns,
    *policies.urlpatterns,
    *billing.urlpatterns,
    *runtime.urlpatterns,
    *settings.urlpatterns,
]
