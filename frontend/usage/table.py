"""The table of the usage page: one row per meter, project, job, key or day, each leading to the jobs behind it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from itertools import groupby
from uuid import UUID

from django.urls import reverse

from frontend.figures.palette import meter_slot
from frontend.templatetags.console import free_notes, run_slot
from frontend.usage.choice import By, Choice, Sort
from frontend.usage.meters import COLUMNS, Column, place, title_of
from jobs.selectors.names import JobName, job_names
from tenants.billing.models import NO_JOB, Meter
from tenants.billing.usage.ranking import RankBy, RankedGroup, usage_ranking
from tenants.billing.usage.selectors import Cost, CostLine, tenant_total, usage_totals
from tenants.models import Tenant

PER_PAGE = 50
_MOST = 5_000  # projects or keys of one lab: all are read to sort them by name
_RANKED: dict[By, RankBy] = {By.JOB: "job", By.PROJECT: "project", By.KEY: "key"}
_OF_NONE = {
    By.PROJECT: "Storage, of no project",
    By.KEY: "From the console, and storage",
    By.JOB: "Storage, of no job",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``url``: the jobs behind it; empty where there are none. ``bar``: percent of the largest row."""

    title: str
    amount: Decimal
    lines: tuple[CostLine, ...]
    url: str = ""
    dot: str = ""  # a colour class
    sub: str = ""
    bar: float = 0.0

    @property
    def free(self) -> list[str]:
        return [note for line in self.lines for note in free_notes(line)]

    @property
    def line(self) -> CostLine:
        return self.lines[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``total`` is of everything the address asks for, on whichever page."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    total: Cost
    count: int
    page: int
    pages: int


def usage_table(tenant: Tenant, choice: Choice) -> Table:
    """The rows of one page. A fixed number of queries for any number of jobs."""
    total = tenant_total(tenant, choice.wanted)
    if choice.by == By.JOB:
        rows, count, page = _jobs(tenant, choice)
    else:
        found = _rows(tenant, choice, total)
        count, page = len(found), min(choice.page, _pages(len(found)))
        rows = _sorted(found, choice.sort)[(page - 1) * PER_PAGE : page * PER_PAGE]
    used = {line.meter for line in total.lines if line.quantity}
    columns = tuple(column for column in COLUMNS if column.meters & used)
    return Table(rows=tuple(rows), columns=columns, total=total, count=count, page=page, pages=_pages(count))


def _rows(tenant: Tenant, choice: Choice, total: Cost) -> list[Row]:
    if choice.by == By.METER:
        rows = [_meter(line, choice) for line in total.lines]
    elif choice.by == By.DAY:
        totals = usage_totals(tenant, group_by="day", wanted=choice.wanted)
        days = groupby(totals, key=lambda one: one.group)
        rows = [_day(day, tuple(one.line for one in parts), choice) for day, parts in days if isinstance(day, date)]
    else:
        ranking = usage_ranking(tenant, _RANKED[choice.by], choice.wanted, most=_MOST)
        rows = [_group(group, choice) for group in ranking.groups]
    return _barred(rows, max((row.amount for row in rows), default=Decimal(0)))


def _jobs(tenant: Tenant, choice: Choice) -> tuple[list[Row], int, int]:
    rising = choice.sort == Sort.SMALLEST
    first = (choice.page - 1) * PER_PAGE
    ranking = usage_ranking(tenant, "job", choice.wanted, first=first, most=PER_PAGE, rising=rising)
    page = min(choice.page, _pages(ranking.count))
    if page != choice.page:
        first = (page - 1) * PER_PAGE
        ranking = usage_ranking(tenant, "job", choice.wanted, first=first, most=PER_PAGE, rising=rising)
    names = job_names(tenant, [group.key for group in ranking.groups if group.key is not None])
    rows = [_job(group, names) for group in ranking.groups]
    return _barred(rows, ranking.largest), ranking.count, page


def _meter(line: CostLine, choice: Choice) -> Row:
    behind = choice.link(by=By.JOB, meter=Meter(line.meter), sort=Sort.LARGEST) if line.meter in Meter.values else ""
    url = "" if line.meter == Meter.STORAGE_BYTE_HOURS else behind
    return Row(
        title=title_of(line.meter), amount=line.amount, lines=(line,), url=url, dot=f"v{meter_slot(line.meter)}"
    )


def _day(day: date, lines: tuple[CostLine, ...], choice: Choice) -> Row:
    amount = sum((line.amount for line in lines), Decimal(0))
    url = choice.link(by=By.JOB, day=day, sort=Sort.LARGEST)
    return Row(title=f"{day.day} {day:%B}", amount=amount, lines=lines, url=url, sub=f"{day:%A}, UTC")


def _group(group: RankedGroup, choice: Choice) -> Row:
    if group.key is None:
        return Row(title=_OF_NONE[choice.by], amount=group.amount, lines=group.lines)
    url = choice.link(**{"by": By.JOB, choice.by.value: group.key, "sort": Sort.LARGEST})
    title = group.label or f"{choice.by.value} {group.key}"
    return Row(title=title, amount=group.amount, lines=group.lines, url=url)


def _job(group: RankedGroup, names: dict[UUID, JobName]) -> Row:
    name = names.get(group.key) if group.key is not None else None
    if name is None:
        title = _OF_NONE[By.JOB] if group.key == NO_JOB else f"job {group.key}"
        return Row(title=title, amount=group.amount, lines=group.lines)
    return Row(
        title=name.name,
        amount=group.amount,
        lines=group.lines,
        url=reverse("frontend:job", args=[group.key]),
        dot=f"r{run_slot(name.number)}",
        sub=f"J-{name.number}",
    )


def _sorted(rows: list[Row], sort: Sort) -> list[Row]:
    if sort == Sort.NAME:
        if rows and rows[0].sub:  # days are in the order of the calendar already
            return rows
        return sorted(rows, key=lambda row: (place(row.line.meter) if row.dot else 0, row.title.casefold()))
    return sorted(rows, key=lambda row: row.amount, reverse=sort == Sort.LARGEST)


def _barred(rows: Iterable[Row], largest: Decimal) -> list[Row]:
    return [replace(row, bar=float(100 * row.amount / largest) if largest else 0.0) for row in rows]


def _pages(count: int) -> int:
    return max(1, -(-count // PER_PAGE))
