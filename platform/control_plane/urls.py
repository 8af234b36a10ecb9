"""Every route of the platform."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from control_plane.health import healthz, readyz
from control_plane.telemetry.views import metrics

DOCS_TEMPLATE = "control_plane/api_docs.html"

handler400 = "control_plane.problems.bad_request"
handler403 = "control_plane.problems.permission_denied"
handler404 = "control_plane.problems.page_not_found"
handler500 = "control_plane.problems.server_error"

api_v1: list[URLPattern | URLResolver] = [
    path("", include("tenants.api_urls")),
    path("", include("tenants.audit.api_urls")),
    path("", include("tenants.quotas.api_urls")),
    path("", include("tenants.datasets.api_urls")),
    path("", include("tenants.billing.api_urls")),
    path("", include("tenants.webhooks.api_urls")),
    path("", include("jobs.api.urls")),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema", template_name=DOCS_TEMPLATE), name="docs"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    path("admin/", admin.site.urls),
    path("", include("control_plane.accounts.urls")),
    path("api/v1/", include(api_v1)),
    path("", include("frontend.urls")),
]
