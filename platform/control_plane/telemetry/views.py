"""`/metrics` for Prometheus: to whoever shows the token, or asks from a network that operators have named."""

import hmac
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from control_plane.middleware import client_address
from control_plane.telemetry.gauges import PlatformCollector


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The registry of this deployment, made anew for each scrape. 401 for strangers."""
    if not _may_scrape(request):
        return HttpResponse(status=401, headers={"WWW-Authenticate": 'Bearer realm="metrics"'})
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(settings.JOYNEXUS_METRICS_DIR))
    registry.register(PlatformCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _may_scrape(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return hmac.compare_digest(token.strip().encode(), settings.JOYNEXUS_METRICS_TOKEN.encode())
    address = client_address(request)
    return address is not None and any(ip_address(address) in network for network in settings.JOYNEXUS_METRICS_ALLOW)
