"""What the address of the usage page asks for. Everything is in the address; nothing in it breaks the page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from tenants.billing.models import Meter
from tenants.billing.usage.periods import month_after
from tenants.billing.usage.selectors import UsageFilter


class By(StrEnum):
    """What the rows of the table are about."""

    METER = "meter"
    PROJECT = "project"
    JOB = "job"
    KEY = "key"  # API keys that submitted the jobs
    DAY = "day"  # UTC


class Split(StrEnum):
    """What the bars of a day consist of."""

    METER = "meter"  # services: training, inference, environment, storage
    PROJECT = "project"
    JOB = "job"


class Sort(StrEnum):
    """Order of the table."""

    LARGEST = "-amount"
    SMALLEST = "amount"
    NAME = "name"  # not of jobs: they are too many to sort outside the database


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A month, how to group it, and which part of it. ``refused``: parts of the address that say nothing."""

    month: date
    by: By = By.METER
    split: Split = Split.METER
    sort: Sort = Sort.LARGEST
    page: int = 1
    project: UUID | None = None
    key: UUID | None = None
    meter: Meter | None = None
    day: date | None = None
    refused: tuple[str, ...] = ()

    @property
    def wanted(self) -> UsageFilter:
        since, until = self.month, month_after(self.month)
        if self.day is not None:
            since, until = self.day, self.day + timedelta(days=1)
        return UsageFilter(
            since=since, until=until, project_id=self.project, key_id=self.key, meter=self.meter and self.meter.value
        )

    @property
    def narrowed(self) -> bool:
        """Whether the table is about a part of the month."""
        return any(part is not None for part in (self.project, self.key, self.meter, self.day))

    def link(self, **changes: Any) -> str:
        """The query string of this choice with something changed; the first page, unless it says another."""
        told = replace(self, **({"page": 1} | changes))
        shown = {"month": f"{told.month:%Y-%m}"} | dict(told.kept) | ({"day": told.day} if told.day else {})
        return "?" + urlencode(shown | ({"page": told.page} if told.page > 1 else {}))

    @property
    def kept(self) -> tuple[tuple[str, Any], ...]:
        """What stays in the address when the month is another; what goes without saying is left out."""
        shown = {"by": self.by, "split": self.split, "sort": self.sort}
        filters = {"project": self.project, "key": self.key, "meter": self.meter}
        defaults = {"by": By.METER, "split": Split.METER, "sort": Sort.LARGEST}
        told = (shown | filters).items()
        return tuple((name, value) for name, value in told if value is not None and value != defaults.get(name))

    def csv_link(self) -> str:
        """The same table from the API."""
        wanted = self.wanted
        told = {"group_by": self.by, "since": wanted.since, "until": wanted.until}
        filters = {"project": self.project, "key": self.key, "meter": self.meter}
        return "/api/v1/usage/csv?" + urlencode(told | {k: v for k, v in filters.items() if v is not None})


def choice_of(query: Mapping[str, str], this_month: date) -> Choice:
    """Read an address. What cannot be read is left out, and said: nothing changes its meaning silently."""
    refused: list[str] = []

    def read(name: str, parse: Callable[[str], Any], otherwise: Any) -> Any:
        text = query.get(name, "")
        if not text:
            return otherwise
        try:
            return parse(text)
        except (ValueError, OverflowError):
            refused.append(f"{name}={text[:40]}")
            return otherwise

    month = read("month", lambda text: _month(text, this_month), this_month)
    choice = Choice(
        month=month,
        by=read("by", By, By.METER),
        split=read("split", Split, Split.METER),
        sort=read("sort", Sort, Sort.LARGEST),
        page=read("page", _count, 1),
        project=read("project", UUID, None),
        key=read("key", UUID, None),
        meter=read("meter", Meter, None),
        day=read("day", lambda text: _day(text, month), None),
    )
    if choice.by == By.JOB and choice.sort == Sort.NAME:
        choice = replace(choice, sort=Sort.LARGEST)
        refused.append("sort=name")
    return replace(choice, refused=tuple(refused))


def _month(text: str, this_month: date) -> date:
    month = date.fromisoformat(f"{text}-01")
    if len(text) != 7 or not date(2020, 1, 1) <= month <= this_month:
        raise ValueError(text)
    return month


def _day(text: str, month: date) -> date:
    day = date.fromisoformat(text)
    if day.replace(day=1) != month:
        raise ValueError(text)
    return day


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 6 or int(text) < 1:
        raise ValueError(text)
    return int(text)
