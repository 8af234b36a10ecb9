"""The runtime page: how busy each shared service is, without a word about who else is there."""

from typing import Any

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from frontend.views.page import frame, page
from jobs.selectors.runtime import bases_offered, runtime_report
from jobs.selectors.utilization import utilization_history
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.RUNTIME_READ)
def runtime_page(request: PageRequest) -> HttpResponse:
    """Cards from the newest report; charts from measured device steps."""
    context = frame(request, "runtime") | {
        "report": runtime_report(),
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
    report, history = runtime_report(), utilization_history(request.tenant)
    return {
        "state": report.state,
        "reason": report.reason,
        "seenAt": report.seen_at.isoformat() if report.seen_at else None,
        "activeJobs": report.active_jobs,
        "services": report.services,
        "history": history.as_json(),
    }
