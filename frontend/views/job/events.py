"""The tab of events: the time line, and the hand-overs to the runtime."""

from typing import Any

from jobs.models import Job
from jobs.selectors.attempts import attempt_list
from jobs.selectors.stream import notable_events
from tenants.requests import PageRequest

PER_PAGE = 100
_SEQ_DIGITS_MAX = 18


def events_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For console/job/events.html. ``before`` in the address: those older than that number."""
    asked = request.GET.get("before", "")
    is_number = asked.isascii() and asked.isdigit() and len(asked) <= _SEQ_DIGITS_MAX
    before = int(asked) if is_number else None
    found = notable_events(request.tenant, job.pk, before=before, limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    return {
        "timeline": shown,
        "before": before,
        "older": shown[-1]["seq"] if len(found) > PER_PAGE else None,
        "attempts": attempt_list(request.tenant, job.pk),
    }
