"""The tab of the specification: readable, as text and commands, and compared with another job's."""

import re
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse, JsonResponse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from frontend.forms.snippets import snippets_of
from frontend.specification import setting_groups, spec_changes
from frontend.views.page import page
from jobs.models import Job
from jobs.selectors.filters import JobFilter
from jobs.selectors.jobs import job_get, job_list
from tenants.permissions import Permission
from tenants.requests import PageRequest

OFFERED = 30
_HANDLE = re.compile(r"(?:j-?)?([0-9]{1,9})", re.IGNORECASE)


def spec_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For console/job/spec.html. ``against`` in the address: another job, by id or as J-12; else its parent."""
    asked = request.GET.get("against", "").strip()
    every = job_list(request.tenant, JobFilter(archived=None))
    other = _named(every, asked) if asked else every.filter(clones=job).first()
    told = snippets_of(job.spec, f"{request.scheme}://{request.get_host()}")
    return {
        "groups": setting_groups(job.spec),
        "snippets": (
            ("spec-json", "JSON", told.json),
            ("spec-curl", "curl", told.curl),
            ("spec-python", "Python", told.python),
        ),
        "against": asked,
        "other": other,
        "changes": spec_changes(other.spec, job.spec) if other else (),
        "others": every.exclude(pk=job.pk)[:OFFERED],
    }


def _named(jobs: QuerySet[Job], text: str) -> Job | None:
    """The job of an id, of ``J-12`` or of ``12``; None if there is none."""
    found = _HANDLE.fullmatch(text)
    if found:
        return jobs.filter(number=int(found[1])).first()
    try:
        return jobs.filter(pk=UUID(text)).first()
    except ValueError:
        return None


@require_safe
@page(Permission.JOBS_READ)
def job_spec(request: PageRequest, job_id: UUID) -> HttpResponse:
    """The specification as a file that can be submitted as it is."""
    job = job_get(request.tenant, job_id)
    answer = JsonResponse(job.spec, json_dumps_params={"indent": 2, "ensure_ascii": False})
    answer["Content-Disposition"] = content_disposition_header(True, f"J-{job.number}.json")
    return answer
