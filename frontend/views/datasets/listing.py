"""The list of datasets, with the storage they take and uploads under way."""

from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from frontend.views.datasets.rows import dataset_rows
from frontend.views.datasets.storage import storage_context
from frontend.views.page import answer, frame, page
from tenants.datasets.models import VersionState
from tenants.datasets.searching import DatasetSort, dataset_search
from tenants.datasets.selectors import uploads_under_way
from tenants.permissions import Permission
from tenants.requests import PageRequest

PER_PAGE = 50
HEADS = (  # (sort key, words, is it a number?)
    ("name", "Dataset", False),
    ("", "State", False),
    ("episodes", "Episodes", True),
    ("frames", "Frames", True),
    ("", "Cameras", False),
    ("size", "Size", True),
    ("", "Jobs", True),
    ("changed", "Newest version", True),
)


@require_safe
@page(Permission.DATASETS_READ)
def dataset_table(request: PageRequest) -> HttpResponse:
    """Search, state and order live in the query string."""
    query = request.GET.get("q", "").replace("\0", "").strip()  # PostgreSQL takes no NUL
    state = request.GET.get("state", "") if request.GET.get("state") in set(VersionState) else ""
    sort = _sort(request.GET.get("sort", ""))
    found = dataset_search(request.tenant, query=query, state=state, sort=sort)
    shown = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    kept = {"q": query, "state": state, "sort": "" if sort == DatasetSort.NEWEST else sort.value}
    context = frame(request, "datasets") | {
        "rows": dataset_rows(request.tenant, list(shown)),
        "shown": shown,
        "query": query,
        "state": state,
        "states": VersionState,
        "sort": sort.value,
        "heads": [_head(key, words, is_number, sort, kept) for key, words, is_number in HEADS],
        "filters": urlencode({name: value for name, value in kept.items() if value}),
        "uploads": list(uploads_under_way(request.tenant)),
        "may_write": request.actor.may(Permission.DATASETS_WRITE),
        "storage": storage_context(request.tenant),
    }
    return answer(request, "console/datasets/list.html", "console/datasets/parts/rows.html", context)


def _sort(wanted: str) -> DatasetSort:
    return DatasetSort(wanted) if wanted in set(DatasetSort) else DatasetSort.NEWEST


def _head(key: str, words: str, is_number: bool, sort: DatasetSort, kept: dict[str, str]) -> dict[str, Any]:
    """A column's head; one that sorts names the order a click gives: numbers greatest first, then turned round."""
    if not key:
        return {"words": words, "is_number": is_number}
    first, second = (f"-{key}", key) if is_number else (key, f"-{key}")
    following = second if sort == first else first
    aria = {"": ""} | {key: "ascending", f"-{key}": "descending"}
    return {
        "words": words,
        "is_number": is_number,
        "aria_sort": aria.get(sort.value, ""),
        "query": urlencode({name: value for name, value in (kept | {"sort": following}).items() if value}),
    }
