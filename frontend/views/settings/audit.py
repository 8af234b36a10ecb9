"""Who did what in the lab."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.refusals import refusal_of
from frontend.views.page import frame, page
from tenants.audit.api import AuditFilter
from tenants.audit.selectors import audit_list
from tenants.bodies import parse_query
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest

PER_PAGE = 50
PAGES_MAX = 200  # further back, filters and the file lead sooner


@require_safe
@page(Permission.AUDIT_READ)
def audit_page(request: PageRequest) -> HttpResponse:
    """Acts that match, newest first; a filter that cannot be read is refused beside the form, with nothing listed."""
    form = {name: request.GET.get(name, "").replace("\0", "").strip() for name in ("verb", "actor", "since", "until")}
    wanted, refusal = _days(form), None
    query: AuditFilter | None = None
    try:
        query = parse_query(AuditFilter, QueryDict(urlencode(wanted)))
    except ApplicationError as error:
        refusal = refusal_of(error)
    number = _page_number(request.GET.get("page", ""))
    rows: list[Any] = []
    if query is not None:
        start = (number - 1) * PER_PAGE
        rows = list(audit_list(request.tenant, **query.model_dump())[start : start + PER_PAGE + 1])
    context = frame(request, "settings") | {
        "section": "audit",
        "events": rows[:PER_PAGE],
        "older": number + 1 if len(rows) > PER_PAGE and number < PAGES_MAX else None,
        "newer": number - 1 if number > 1 else None,
        "filters": urlencode({name: value for name, value in form.items() if value}),
        "file_query": urlencode(wanted),
        "typed": form,
        "refusal": refusal,
    }
    return render(request, "console/settings/audit.html", context, status=422 if refusal else 200)


def _days(form: dict[str, str]) -> dict[str, str]:
    """The form as the API takes it: days in UTC, the last one included."""
    wanted = {name: form[name] for name in ("verb", "actor") if form[name]}
    if form["since"]:
        wanted["since"] = f"{form['since']}T00:00:00Z"
    if form["until"]:
        wanted["until"] = f"{form['until']}T23:59:59.999999Z"
    return wanted


def _page_number(text: str) -> int:
    return min(max(int(text), 1), PAGES_MAX) if text.isascii() and text.isdigit() and len(text) < 6 else 1
