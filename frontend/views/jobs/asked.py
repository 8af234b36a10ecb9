"""The address of the job list: which jobs, in which order and columns. Everything a reader sets is in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from frontend.facts import KIND_WORDS
from frontend.views.jobs.columns import COLUMNS, COLUMNS_SHOWN, MEASURED
from jobs.selectors.filters import STATE_LIVE, JobFilter, JobSort
from jobs.states import JobState

SIZES = (25, 50, 100, 200)
SIZE = 50
PAGE_MAX = 4000
ENDED_DAYS_MAX = 366
ARCHIVED: dict[str, bool | None] = {"": False, "only": True, "all": None}
_TEXT_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query string, understood. ``params``: what is set, by name; ``ignored``: what was not understood, as written.

    ``sort`` is one of `JobSort` or a measured figure of `columns.MEASURED`, with ``-`` in front for the largest first.
    """

    wanted: JobFilter
    sort: str
    columns: tuple[str, ...]
    size: int
    page: int
    params: Mapping[str, Any]
    ignored: tuple[str, ...]

    @property
    def measured(self) -> str:
        """The figure that is sorted by, if no index gives the order."""
        name = self.sort.removeprefix("-")
        return name if name in MEASURED else ""

    @property
    def filters(self) -> dict[str, str]:
        """Which jobs, without how they are shown."""
        return {name: value for name, value in self.params.items() if name in _FILTERS}

    def query(self, **changes: Any) -> str:
        """This address with other values; empty ones leave it, and whatever changes begins at the first page."""
        params = {**self.params, "page": "", **changes}
        return urlencode({name: value for name, value in params.items() if value not in ("", None, ())}, doseq=True)


def asked_of(given: QueryDict, *, projects: set[str], owners: set[int]) -> Asked:
    """Nothing raises: a value that is not allowed is left out, and said to be."""
    checks = _checks(projects, owners)
    params: dict[str, Any] = {}
    ignored = []
    for name in given:
        values = [_clean(value) for value in given.getlist(name)]
        if name == "col":
            params[name] = tuple(dict.fromkeys(value for value in values if value in COLUMNS))
            ignored += [f"{name}={value}" for value in values if value not in COLUMNS]
        elif values[-1] and (name not in checks or not checks[name](values[-1])):
            ignored.append(f"{name}={values[-1]}"[:80])
        elif values[-1]:
            params[name] = values[-1]
    sort = params.get("sort", JobSort.NEWEST.value)
    return Asked(
        wanted=_filter(params, sort),
        sort=sort,
        columns=params.get("col") or COLUMNS_SHOWN,
        size=int(params.get("size", SIZE)),
        page=int(params.get("page", 1)),
        params=params,
        ignored=tuple(ignored),
    )


def _filter(params: Mapping[str, Any], sort: str) -> JobFilter:
    return JobFilter(
        state=params.get("state", ""),
        kind=params.get("kind", ""),
        head=params.get("head", ""),
        base_model=params.get("base", ""),
        owner=int(params["owner"]) if "owner" in params else None,
        tag=params.get("tag", ""),
        project=params.get("project", ""),
        priority=int(params["priority"]) if "priority" in params else None,
        query=params.get("q", ""),
        ended_days=int(params["ended"]) if "ended" in params else None,
        archived=ARCHIVED[params.get("archived", "")],
        sort=JobSort(sort) if sort in set(JobSort) else JobSort.NEWEST,
    )


def _checks(projects: set[str], owners: set[int]) -> dict[str, Callable[[str], bool]]:
    """What each parameter may be."""
    sorts = {*JobSort, *MEASURED, *(f"-{name}" for name in MEASURED)}
    return {
        "q": lambda value: len(value) <= _TEXT_LENGTH_MAX,
        "state": lambda value: value in {*JobState, STATE_LIVE},
        "kind": lambda value: value in KIND_WORDS,
        "head": lambda value: len(value) <= _TEXT_LENGTH_MAX,
        "base": lambda value: len(value) <= _TEXT_LENGTH_MAX,
        "owner": lambda value: _within(value, 0, 2**31) and int(value) in owners,
        "tag": lambda value: len(value) <= _TEXT_LENGTH_MAX,
        "project": lambda value: value in projects,
        "priority": lambda value: _within(value, 0, 9),
        "archived": lambda value: value in ARCHIVED,
        "ended": lambda value: _within(value, 1, ENDED_DAYS_MAX),
        "sort": lambda value: value in sorts,
        "size": lambda value: value in set(map(str, SIZES)),
        "page": lambda value: _within(value, 1, PAGE_MAX),
    }


_FILTERS = ("q", "state", "kind", "head", "base", "owner", "project", "priority", "tag", "archived", "ended")


def _within(text: str, low: int, high: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11 and low <= int(text) <= high


def _clean(text: str) -> str:
    """PostgreSQL takes no NUL, and nothing takes half a surrogate pair."""
    return text.replace("\0", "").encode(errors="ignore").decode().strip()
