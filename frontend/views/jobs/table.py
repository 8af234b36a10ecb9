"""The job list as a page, and its live part."""

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from frontend.comparison import COMPARED_MAX
from frontend.facts import KIND_WORDS
from frontend.home.snippets import snippets_context
from frontend.views.jobs.asked import SIZE, SIZES, Asked, asked_of
from frontend.views.jobs.columns import COLUMNS, JOB, Head, next_sort, sorted_way
from frontend.views.jobs.rows import COUNTED_MAX, listing_of
from frontend.views.jobs.saved import counted, tabs_of, tag_counts
from frontend.views.page import answer, frame, page, wants_part
from jobs.selectors.filters import STATE_LIVE
from jobs.selectors.jobs import recent_models
from jobs.states import JobState
from tenants.permissions import Permission
from tenants.requests import PageRequest
from tenants.selectors import member_list, project_list

PRIORITIES = tuple(range(9, -1, -1))


@require_safe
@page(Permission.JOBS_READ)
def job_table(request: PageRequest) -> HttpResponse:
    """Filters, order, columns and page are in the query string; the part is read anew whenever a job changes."""
    choices = _choices(request)
    asked = asked_of(
        request.GET,
        projects={row.slug for row in choices["projects"]},
        owners={row.user_id for row in choices["owners"]},
    )
    listing, tags = listing_of(request.tenant, asked), tag_counts(request.tenant)
    tabs = tabs_of(request.tenant, asked, tags)
    context: dict[str, Any] = {
        "asked": asked,
        "params": asked.params,
        "listing": listing,
        "count": counted(listing.count),
        "counted_max": f"{COUNTED_MAX:,}",
        "tabs": tabs,
        "job_head": _head("job", JOB.title, asked),
        "heads": [_head(key, COLUMNS[key].title, asked) for key in asked.columns],
        "may_write": request.actor.may(Permission.JOBS_WRITE),
        "compared_max": COMPARED_MAX,
        "tenant": request.tenant,
        "part": wants_part(request),
        "newer": asked.query(page=asked.page - 1 if asked.page > 2 else ""),
        "older": asked.query(page=asked.page + 1),
        "sizes": [(size, asked.query(size=size if size != SIZE else "")) for size in SIZES],
        "is_new": request.tenant.jobs_numbered == 0,
    }
    if context["is_new"] and context["may_write"]:
        context |= snippets_context(request)
    if not context["part"]:
        context |= frame(request, "jobs") | choices | _words(request, asked, sorted(tags))
    return answer(request, "console/jobs/page.html", "console/jobs/part.html", context)


def _head(key: str, title: str, asked: Asked) -> Head:
    column = JOB if key == "job" else COLUMNS[key]
    sort = next_sort(column, asked.sort)
    return Head(
        key=key,
        title=title,
        css=column.css,
        query=asked.query(sort=sort) if sort else "",
        aria=sorted_way(column, asked.sort),
    )


def _choices(request: PageRequest) -> dict[str, Any]:
    return {
        "projects": list(project_list(request.actor).order_by("slug")),
        "owners": list(member_list(request.actor).order_by("user__email")),
    }


def _words(request: PageRequest, asked: Asked, tags: list[str]) -> dict[str, Any]:
    """What the form offers. A value that is set is always offered, known or not."""
    models = recent_models(request.tenant)
    own = asked.params
    return {
        "states": [*JobState],
        "state_live": STATE_LIVE,
        "kinds": KIND_WORDS,
        "bases": sorted({base for base, _ in models} | ({own["base"]} if "base" in own else set())),
        "action_heads": sorted({head for _, head in models} | ({own["head"]} if "head" in own else set())),
        "tags": sorted({*tags, *([own["tag"]] if "tag" in own else [])}),
        "priorities": PRIORITIES,
        "ended_choices": sorted({1, 7, 30, *([asked.wanted.ended_days] if asked.wanted.ended_days else [])}),
        "columns": [(key, column.title, key in asked.columns) for key, column in COLUMNS.items()],
        "kept": [(name, value) for name, value in own.items() if name not in {"col", "page"}],
        "more_on": sum(name in own for name in ("base", "project", "priority", "archived", "ended")),
    }
