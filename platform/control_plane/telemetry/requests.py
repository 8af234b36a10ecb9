"""Requests by route, method and status: counted by every web process into files of the metrics folder."""

import time

from django.http import HttpRequest, HttpResponse
from prometheus_client import Counter, Histogram

from control_plane.middleware import GetResponse

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)

# In no registry: /metrics reads the files of every process, dead ones too, so that counts never fall.
REQUESTS = Counter("joynexus_http_requests", "Requests answered.", ["route", "method", "status"], registry=None)
DURATION = Histogram(
    "joynexus_http_request_duration_seconds",
    "Time to an answer's first byte.",
    ["route", "method"],
    buckets=_BUCKETS_S,
    registry=None,
)


class RequestMetricsMiddleware:
    """Counts and times every request. Labels are patterns of routes, never addresses, ids or tenants."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began_s = time.perf_counter()
        response = self.get_response(request)
        route, method = _route(request), request.method if request.method in _METHODS else "other"
        REQUESTS.labels(route, method, response.status_code).inc()
        DURATION.labels(route, method).observe(time.perf_counter() - began_s)
        return response


def _route(request: HttpRequest) -> str:
    """The pattern that matched; whatever nobody handles is one route, or strangers could make up labels."""
    match = request.resolver_match
    return "/" + match.route if match is not None else "none"
