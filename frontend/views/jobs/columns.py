"""The columns of the job list: which there are, which are shown unless others are chosen, which can be sorted by."""

from dataclasses import dataclass

from jobs.selectors.filters import JobSort

MEASURED = ("duration", "cost")
"""Figures no index holds: the list is sorted by them where few enough jobs match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """``css``: classes of its head; ``sort``: smallest first; ``first``: the order a click begins with."""

    title: str
    css: str = ""
    sort: str = ""
    first: str = ""


COLUMNS: dict[str, Column] = {
    "model": Column(title="Model", css="lo"),
    "data": Column(title="Data or environment"),
    "result": Column(title="Result", css="num"),
    "progress": Column(title="Progress", css="num"),
    "duration": Column(title="Duration", css="num", sort="duration", first="-duration"),
    "cost": Column(title="Cost", css="num", sort="cost", first="-cost"),
    "submitted": Column(title="Submitted", css="num", sort=JobSort.OLDEST, first=JobSort.NEWEST),
    "ended": Column(title="Ended", css="num"),
    "project": Column(title="Project"),
    "priority": Column(title="Priority", css="num"),
    "note": Column(title="Note"),
}
COLUMNS_SHOWN = ("model", "data", "result", "duration", "cost", "submitted")
JOB = Column(title="Job", sort=JobSort.NAME, first=JobSort.NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A column's head as it is drawn. ``aria``: ascending, descending, or empty; ``query``: what a click asks for."""

    key: str
    title: str
    css: str
    query: str
    aria: str

    @property
    def arrow(self) -> str:
        return {"ascending": "↑", "descending": "↓"}.get(self.aria, "")


def next_sort(column: Column, now: str) -> str:
    """Again on the head that is sorted by turns the order round; empty for one that cannot be sorted by."""
    if not column.sort:
        return ""
    if now.removeprefix("-") != column.sort.removeprefix("-"):
        return column.first
    return now.removeprefix("-") if now.startswith("-") else f"-{now}"


def sorted_way(column: Column, now: str) -> str:
    if not column.sort or now.removeprefix("-") != column.sort.removeprefix("-"):
        return ""
    return "descending" if now.startswith("-") else "ascending"
