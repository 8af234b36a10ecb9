"""The runtime page: how busy each shared service is and one's own part, without a word about who else is there."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from frontend.runtime_board import group_words, runtime_figures, service_cards
from frontend.views.page import answer, frame, page
from jobs.models import Job
from jobs.selectors.line import STARTED
from jobs.selectors.names import jobs_in
from jobs.selectors.runtime import bases_offered, runtime_report
from jobs.selectors.utilization import WINDOW_S
from jobs.selectors.waits import own_waits
from tenants.billing.models import Meter
from tenants.billing.usage.selectors import Cost, job_costs
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.requests import PageRequest

_MOST_JOBS = 20
_METERS = (Meter.TRAIN_COMPUTE_US, Meter.PREDICT_COMPUTE_US, Meter.ENV_COMPUTE_US)


@require_safe
@page(Permission.RUNTIME_READ)
def runtime_page(request: PageRequest) -> HttpResponse:
    """Cards from the newest report; figures from measured steps. A fixed number of queries."""
    report = runtime_report()
    cards = service_cards(request.tenant, report)
    bases = bases_offered()
    context = frame(request, "runtime") | {
        "report": report,
        "cards": cards,
        "figures": runtime_figures(cards),
        "group_words": group_words(cards),
        "window_min": WINDOW_S // 60,
        "waits": own_waits(request.tenant),
        "own_jobs": _own_jobs(request.tenant),
        "bases": bases,
        "only_cpu": all(base["info"]["device"] == "cpu" for base in bases if base["info"]),
        "any_base": any(base["info"] for base in bases),
    }
    return answer(request, "console/runtime/runtime.html", "console/runtime/board.html", context)


def _own_jobs(tenant: Tenant) -> list[dict[str, Any]]:
    """The newest of one's own jobs at work, with the time measured for each since it began."""
    jobs = jobs_in(tenant, STARTED, most=_MOST_JOBS)
    costs = job_costs(tenant, [job.pk for job in jobs])
    return [{"job": job, "times": list(_times(job, costs))} for job in jobs]


def _times(job: Job, costs: dict[UUID, Cost]) -> Iterable[int | None]:
    """Microseconds of training, inference and environment; None for a service it never used."""
    used = {line.meter: line.quantity for line in costs[job.pk].lines}
    for meter in _METERS:
        yield used.get(meter)
