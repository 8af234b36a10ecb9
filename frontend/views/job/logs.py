"""The tab of the log: its newest lines as the page comes; script goes on from there."""

from typing import Any

from jobs.models import Job
from jobs.selectors.logs import LogFilter, LogLevel, log_page
from tenants.requests import PageRequest

LINES_SHOWN = 500
_QUERY_LENGTH_MAX = 200
LEVEL_WORDS = {LogLevel.INFO: "Log lines", LogLevel.WARNING: "Warnings and errors", LogLevel.ERROR: "Errors"}


def logs_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For console/job/logs.html. ``q`` and ``level`` in the address filter; what cannot be meant is left out."""
    query = request.GET.get("q", "").replace("\0", "").strip()[:_QUERY_LENGTH_MAX]
    level = request.GET.get("level", "")
    wanted = LogFilter(query=query, level=LogLevel(level) if level in set(LogLevel) else None)
    found = log_page(request.tenant, job.pk, wanted=wanted, limit=LINES_SHOWN)
    return {"log": found, "query": query, "level": wanted.level or "", "levels": LEVEL_WORDS}
