"""The runtime page: how busy each shared service is, without a word about who else is there."""

from typing import Any

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from frontend.views.page import frame, page
from jobs.selectors.runtime import bases_offered, runtime_report
from jobs.selectors.utilization import SERVICES, utilization_history
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.RUNTIME_READ)
def runtime_page(request: PageRequest) -> HttpResponse:
    """Cards from the newest report; charts from measured steps."""
    report = runtime_report()
    context = frame(request, "runtime") | {
        "report": report,
        "services": sorted(report.services, key=lambda row: _place(row["service"])),
        "bases": bases_offered(),
        "live": {"url": reverse("frontend:runtime_data")} | _data(request),
    }
    return render(request, "console/runtime.html", context)


@require_safe
@page(Permission.RUNTIME_READ)
def runtime_data(request: PageRequest) -> HttpResponse:
    """The figures of the page, for its script."""
    return JsonResponse(_data(request))


def _data(request: PageRequest) -> dict[str, Any]:
    report = runtime_report()
    return {
        "state": report.state,
        "reason": report.reason,
        "seenAt": report.seen_at.isoformat() if report.seen_at else None,
        "activeJobs": report.active_jobs,
        "services": report.services,
        "history": {service: utilization_history(request.tenant, service=service).as_json() for service in SERVICES},
    }


def _place(service: str) -> int:
    return SERVICES.index(service) if service in SERVICES else len(SERVICES)
